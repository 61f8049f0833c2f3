"""The state volume of two controllers: one step, after which the one before finds nothing any more."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from images.common import terms
from images.common.process import RefusedError

ME = (os.getuid(), os.getgid())


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """As one controller leaves it."""
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "hash.1/job.11").mkdir(parents=True)
    (tmp_path / "hash.1/job.11/script").write_text("#!/bin/sh\n")
    (tmp_path / "job_state").write_text("jobs")
    return tmp_path


def files(volume: Path) -> list[str]:
    return sorted(str(path.relative_to(volume)) for path in volume.rglob("*") if path.is_file())


def test_whoever_wrote_before_finds_nothing_any_more(volume: Path) -> None:
    before = terms.take_over(1, ME, volume)
    unfinished = (before / "job_state.new").open("w")
    after = terms.take_over(2, ME, volume)
    with pytest.raises(FileNotFoundError):
        (before / "job_state").write_text("of the past")
    with pytest.raises(FileNotFoundError):
        (before / "job_state.new").rename(before / "job_state")
    unfinished.write("of the past")
    unfinished.close()
    assert (after / "job_state").read_text() == "jobs"
    assert not (after / "job_state.new").exists()


@pytest.mark.parametrize(("code", "is_well"), [(errno.ENOSPC, True), (errno.EROFS, False)])
def test_a_volume_that_is_full_answers_and_one_that_takes_no_writes_does_not(
    volume: Path, monkeypatch: pytest.MonkeyPatch, code: int, *, is_well: bool
) -> None:
    def refuse(_: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "utime", refuse)
    with contextlib.nullcontext() if is_well else pytest.raises(OSError, match=os.strerror(code)):
        terms.touch(volume)


@pytest.mark.parametrize(
    ("mounted", "is_well"),
    [
        ("nfs4 server:/state rw,vers=4.2,hard", False), ("nfs server:/state rw,lookupcache=none", True),
        ("ceph mon:/state rw", True),
    ],
)  # fmt: skip
def test_nfs_that_remembers_names_is_refused(volume: Path, tmp_path: Path, mounted: str, *, is_well: bool) -> None:
    """As the kernel lists it: "show_options" of fs/nfs/super.c."""
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(f"500 400 0:40 / / rw - overlay overlay rw\n501 500 0:41 / {volume} rw - {mounted}\n")
    with contextlib.nullcontext() if is_well else pytest.raises(RefusedError, match="mountOptions"):
        terms.expect_no_memory(volume, mountinfo)


def test_who_was_paused_between_looking_and_renaming_takes_nothing(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = terms.take_over(4, ME, volume)
    terms.take_over(6, ME, volume)
    monkeypatch.setattr(terms, "current", lambda _: seen)
    with pytest.raises(terms.LostError):
        terms.take_over(5, ME, volume)
    assert files(volume) == ["term-6/hash.1/job.11/script", "term-6/job_state"]


@pytest.mark.parametrize("left", ["adopting", "returning"])
@pytest.mark.parametrize("finish", [terms.return_to_one, lambda volume: terms.take_over(9, ME, volume)])
def test_what_was_interrupted_goes_on_the_other_way_as_well(
    volume: Path, left: str, finish: Callable[[Path], object]
) -> None:
    """One that is killed while it adopts, and then there is to be but one; or the other way round, or a restore."""
    before = files(volume)
    (volume / left).mkdir()
    (volume / "job_state").rename(volume / left / "job_state")
    finish(volume)
    directory = terms.current(volume) or volume
    assert files(directory) == before


STEPS: tuple[Callable[[Path], object], ...] = (
    lambda at: (at / "job_state.new").write_text("new"),
    lambda at: (at / "job_state.old").unlink(),
    lambda at: os.link(at / "job_state", at / "job_state.old"),
    lambda at: (at / "job_state").unlink(),
    lambda at: os.link(at / "job_state.new", at / "job_state"),
    lambda at: (at / "job_state.new").unlink(),
)
"""Those of `save_buf_to_state`."""


@pytest.mark.parametrize(
    ("steps", "text", "again"),
    [(1, "now", False), (2, "now", False), (3, "now", False), (4, "new", True), (5, "new", False), (6, "new", False)],
)
def test_a_save_that_was_cut_short_leaves_what_was_saved_last(
    tmp_path: Path, steps: int, text: str, *, again: bool
) -> None:
    (tmp_path / "job_state").write_text("now")
    (tmp_path / "job_state.old").write_text("of long ago")
    for step in STEPS[:steps]:
        step(tmp_path)
    assert terms.finish_saves(tmp_path) == (["job_state"] if again else [])
    assert (tmp_path / "job_state").read_text() == text
    assert not (tmp_path / "job_state.new").exists()
    assert not terms.finish_saves(tmp_path)


def test_of_the_first_save_only_a_whole_one_counts(tmp_path: Path) -> None:
    """Nothing was answered before it."""
    (tmp_path / "job_state.new").write_text("ne")
    assert terms.finish_saves(tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_where_only_the_older_one_is_left_it_counts(tmp_path: Path) -> None:
    """26.05 does not look for it."""
    (tmp_path / "node_state.old").write_text("nodes")
    assert terms.finish_saves(tmp_path) == ["node_state"]
    assert (tmp_path / "node_state").read_text() == "nodes"
