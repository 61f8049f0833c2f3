"""A copy of slurmctld's files while it replaces them, or another controller takes them over; and one put back."""

from __future__ import annotations

import struct
from pathlib import Path
from unittest.mock import Mock

import pytest

from images.backup import backups, restic, restore, state
from images.backup.restic import INCOMPLETE
from images.common.command import Result
from images.common.log import Log
from images.common.process import CannotGoOnError, RefusedError

LOG = Log("test")


def jobs(following: int, rest: bytes = b"the jobs") -> bytes:
    """The head of a job_state, as both versions of Slurm write it."""
    return struct.pack(">I", 17) + b"PROTOCOL_VERSION\0" + struct.pack(">HQI", 0x2A00, 1_764_000_000, following) + rest


def next_id(file: Path) -> int:
    return int.from_bytes(file.read_bytes()[31:35])


@pytest.mark.parametrize("ending", ["new", "old"])
def test_of_a_save_that_was_cut_short_is_saved_what_slurmctld_would_begin_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Where it cannot start any more, a restore still saves what is there."""
    monkeypatch.setattr(state, "_PAUSE", 0)
    (tmp_path / "job_state.old").write_bytes(jobs(3))
    (tmp_path / f"job_state.{ending}").write_bytes(jobs(4))
    assert state.take(tmp_path, tmp_path / "copy") == ["job_state"]
    assert next_id(tmp_path / "copy/job_state") == 4


def test_a_state_with_half_a_queue_is_no_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_PAUSE", 0)
    (tmp_path / "job_state.new").write_bytes(jobs(3))
    with pytest.raises(CannotGoOnError, match="only an unfinished version"):
        state.take(tmp_path, tmp_path / "copy")


def put_back(directory: Path, content: dict[str, bytes], highest: int = 0) -> None:
    def fetch(target: Path) -> None:
        for name, data in content.items():
            (target / name).write_bytes(data)

    state.put_back(directory, fetch, backup="20261126T020000Z", highest=highest, log=LOG)


def test_what_was_there_goes_and_the_agent_s_files_stay(tmp_path: Path) -> None:
    (tmp_path / "job_state").write_bytes(jobs(50))
    (tmp_path / "hash.1").mkdir()
    (tmp_path / "slurmstack").mkdir()
    (tmp_path / "slurmstack/accounting").touch()
    (tmp_path / "slurmstack/current").touch()
    put_back(tmp_path, {"job_state": jobs(20)}, highest=30)
    assert next_id(tmp_path / "job_state") == 50, "the state that is replaced had given 49 out"
    put_back(tmp_path, {"job_state": jobs(20)}, highest=60)
    assert next_id(tmp_path / "job_state") == 61, "accounting knows 60"
    assert {path.name for path in tmp_path.iterdir()} == {"job_state", "slurmstack"}
    assert {path.name for path in (tmp_path / "slurmstack").iterdir()} == {"current"}, "slurmdbd gives the id anew"


def test_a_backup_of_two_controllers_has_its_scripts_where_slurmctld_looks_for_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def must(_: str, *arguments: str) -> None:
        target = Path(arguments[arguments.index("--target") + 1])
        for name in ("state/job_state", "volume/term-7/hash.1/job.11/script"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).touch()

    monkeypatch.setattr(restic, "must", must)
    restore.fetch_state("1", tmp_path)
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert found == {"job_state", "hash.1/job.11/script"}


def test_the_state_of_a_newer_slurm_or_none_at_all_is_not_put_under_this_one(tmp_path: Path) -> None:
    newer = jobs(9).replace(b"\x2a\x00", b"\x2d\x00", 1)
    queue = tmp_path / "job_state"
    queue.write_bytes(newer)
    state.refuse_unreadable(queue, "backup", "slurm 26.05.5")
    for content, why in (
        (newer, "of a newer Slurm"),
        (b"\0\0\0\7VERSION" * 9, "does not begin as a job_state"),
        (b"", "has no queue: slurmctld had saved none yet"),
    ):
        queue.write_bytes(content)
        with pytest.raises(RefusedError, match=why):
            state.refuse_unreadable(queue, "backup", "slurm 24.11.5")


@pytest.mark.parametrize("other", ["job_state.old", "job_state.new"])
def test_a_state_that_nobody_can_read_is_replaced(tmp_path: Path, other: str) -> None:
    """It is what one restores for. What other files know of ids counts."""
    (tmp_path / "job_state").write_bytes(b"no state at all, " * 5)
    (tmp_path / other).write_bytes(jobs(700))
    put_back(tmp_path, {"job_state": jobs(100)}, highest=600)
    assert next_id(tmp_path / "job_state") == 700


def test_there_is_a_queue_whenever_it_is_interrupted_and_ids_go_on_above_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in {"job_state": jobs(5000), "node_state": b"old", "assoc": b"old"}.items():
        (tmp_path / name).write_bytes(content)
    moves, rename = 0, Path.rename

    def killed(path: Path, target: Path) -> Path:
        nonlocal moves
        if (moves := moves - 1) < 0:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", killed)
    for number in (0, 1, 99):
        moves = number
        try:
            put_back(tmp_path, {"job_state": jobs(100), "node_state": b"new", "resv": b"new"})
        except KeyboardInterrupt:
            assert next_id(tmp_path / "job_state") == 5000, number
    assert next_id(tmp_path / "job_state") == 5000
    assert {path.name for path in tmp_path.iterdir()} == {"job_state", "node_state", "resv"}
    assert (tmp_path / "node_state").read_bytes() == b"new"


UNREAD = '{"message_type": "error", "item": "/stage/state", "error": {"message": "denied"}}'


@pytest.mark.parametrize(("unread", "moved", "why"), [(UNREAD, False, "denied"), ("", True, "slurmctld started")])
def test_a_state_that_was_saved_by_half_or_taken_over_meanwhile_is_no_backup(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, unread: str, moved: bool, why: str
) -> None:
    """restic finds no scripts then, which by itself is no error. A restore would take it for the last one."""
    done, must = Result(code=INCOMPLETE, stdout='{"snapshot_id": "abc"}', stderr=unread), Mock()
    monkeypatch.setattr(restic, "call", Mock(return_value=done))
    monkeypatch.setattr(restic, "must", must)
    marks = {"backup": "20261126T020000Z", "kind": "manual", "parts": "state", "cluster": "c"}
    with pytest.raises(CannotGoOnError, match=f"state could not be saved: .*{why}"):
        backups._save(LOG, marks, "state", "/stage/state", still=tmp_path / "away" if moved else tmp_path)
    assert must.call_args.args[1:] == ("forget", "--quiet", "abc")
