"""A copy of slurmctld's files while it replaces them, and one that is put back."""

from __future__ import annotations

import struct
import threading
from pathlib import Path

import pytest

from images.backup import state
from images.common.log import Log
from images.common.process import CannotGoOnError, RefusedError

LOG = Log("test")


def jobs(following: int, rest: bytes = b"the jobs") -> bytes:
    """The head of a job_state, as both versions of Slurm write it."""
    return struct.pack(">I", 17) + b"PROTOCOL_VERSION\0" + struct.pack(">HQI", 0x2A00, 1_764_000_000, following) + rest


def replace_like_slurmctld(directory: Path, name: str, content: bytes) -> None:
    new, old, file = (directory / f"{name}{ending}" for ending in (".new", ".old", ""))
    new.write_bytes(content)
    old.unlink(missing_ok=True)
    if file.exists():
        old.hardlink_to(file)
        file.unlink()
    file.hardlink_to(new)
    new.unlink()


def test_each_file_is_whole_while_slurmctld_replaces_it(tmp_path: Path) -> None:
    source, stop = tmp_path / "state", threading.Event()
    source.mkdir()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            replace_like_slurmctld(source, "job_state", jobs(number, bytes([number % 256]) * 200_000))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not (source / "job_state").exists():
            pass
        for number in range(30):
            target = tmp_path / f"copy-{number}"
            assert state.take(source, target) == ["job_state"]
            content = (target / "job_state").read_bytes()
            assert content == jobs(state.next_id(target), bytes([state.next_id(target) % 256]) * 200_000)
    finally:
        stop.set()
        writer.join()


def test_a_name_that_is_away_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "job_state.new").write_bytes(jobs(3))
    later = threading.Timer(0.12, lambda: (tmp_path / "job_state.new").rename(tmp_path / "job_state"))
    later.start()
    assert state.take(tmp_path, tmp_path / "copy") == ["job_state"]
    assert state.next_id(tmp_path / "copy") == 3


@pytest.mark.parametrize("ending", ["new", "old"])
def test_of_a_save_that_was_cut_short_is_saved_what_slurmctld_would_begin_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Where it cannot start any more, a restore still saves what is there."""
    monkeypatch.setattr(state, "_PAUSE", 0)
    (tmp_path / "job_state.old").write_bytes(jobs(3))
    (tmp_path / f"job_state.{ending}").write_bytes(jobs(4))
    assert state.take(tmp_path, tmp_path / "copy") == ["job_state"]
    assert state.next_id(tmp_path / "copy") == 4


def test_a_state_with_half_a_queue_is_no_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_PAUSE", 0)
    (tmp_path / "job_state.new").write_bytes(jobs(3))
    with pytest.raises(CannotGoOnError, match="only an unfinished version"):
        state.take(tmp_path, tmp_path / "copy")


def test_the_next_id_is_above_all_that_are_known_and_nothing_else_changes(tmp_path: Path) -> None:
    (tmp_path / "job_state").write_bytes(jobs(41))
    assert state.raise_next_id(tmp_path, 40) == 41
    assert state.raise_next_id(tmp_path, 99) == 99
    assert (tmp_path / "job_state").read_bytes() == jobs(99)


def test_a_file_of_another_form_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "job_state").write_bytes(b"\0\0\0\7VERSION" * 9)
    with pytest.raises(RefusedError, match="does not begin as a job_state"):
        state.raise_next_id(tmp_path, 99)


def put_back(directory: Path, content: dict[str, bytes], highest: int = 0) -> None:
    def fetch(target: Path) -> None:
        for name, data in content.items():
            (target / name).write_bytes(data)

    state.put_back(directory, fetch, backup="20261126T020000Z", highest=highest, log=LOG)


def test_what_was_there_is_kept_aside_and_the_agent_s_files_stay(tmp_path: Path) -> None:
    (tmp_path / "job_state").write_bytes(jobs(50))
    (tmp_path / "hash.1").mkdir()
    (tmp_path / "slurmstack").mkdir()
    (tmp_path / "slurmstack/accounting").touch()
    (tmp_path / "slurmstack/current").touch()
    put_back(tmp_path, {"job_state": jobs(20)}, highest=30)
    assert state.next_id(tmp_path) == 50, "the state that is replaced had given 49 out"
    (aside,) = tmp_path.glob("replaced-*")
    assert {path.name for path in aside.iterdir()} == {"job_state", "hash.1"}
    assert {path.name for path in (tmp_path / "slurmstack").iterdir()} == {"current"}, "slurmdbd gives the id anew"


def test_the_id_that_accounting_knows_is_not_given_out_again(tmp_path: Path) -> None:
    put_back(tmp_path, {"job_state": jobs(20)}, highest=30)
    assert state.next_id(tmp_path) == 31


def test_the_state_of_a_newer_slurm_is_not_put_under_an_older_one(tmp_path: Path) -> None:
    (tmp_path / "job_state").write_bytes(jobs(5))
    newer = jobs(9).replace(b"\x2a\x00", b"\x2d\x00", 1)
    with pytest.raises(RefusedError, match="of a newer Slurm"):
        put_back(tmp_path, {"job_state": newer})
    assert (tmp_path / "job_state").read_bytes() == jobs(5)


@pytest.mark.parametrize("damaged", [b"", jobs(5)[:20], b"no state at all, " * 5])
@pytest.mark.parametrize("other", ["replaced-20260101T000000Z/job_state", "job_state.old", "job_state.new"])
def test_a_state_that_nobody_can_read_is_replaced(tmp_path: Path, damaged: bytes, other: str) -> None:
    """It is what one restores for. What other files know of ids counts."""
    (tmp_path / "job_state").write_bytes(damaged)
    (tmp_path / "replaced-20260101T000000Z").mkdir()
    (tmp_path / other).write_bytes(jobs(700))
    put_back(tmp_path, {"job_state": jobs(100)})
    assert state.next_id(tmp_path) == 700


def test_ids_go_on_after_a_backup_from_before_the_first_job(tmp_path: Path) -> None:
    """Of which slurmctld had saved no queue: it gets one without jobs (tests/slurm/test_backup_terms.py starts from
    such a one)."""
    (tmp_path / "job_state").write_bytes(jobs(5))
    put_back(tmp_path, {"node_state": jobs(0)[:23]})
    assert state.next_id(tmp_path) == 5
    content = (tmp_path / "job_state").read_bytes()
    assert content[:23] == jobs(0)[:23]
    assert len(content) == 23 + 8 + 4 + 8


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
    names = iter(range(1, 10))
    monkeypatch.setattr("images.backup.state.time.strftime", lambda *_: f"{next(names)}")
    for number in (*range(1, 5), 99):
        moves = number
        try:
            put_back(tmp_path, {"job_state": jobs(100), "node_state": b"new", "resv": b"new"})
        except KeyboardInterrupt:
            assert state.next_id(tmp_path) == 5000, number
    assert state.next_id(tmp_path) == 5000
    assert (tmp_path / "node_state").read_bytes() == b"new"
    assert len(list(tmp_path.glob("replaced-*"))) == 2
