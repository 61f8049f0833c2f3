"""Slurm's state on its volume: saves that were cut short, and what two controllers have left."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from images.common import terms


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


@pytest.mark.parametrize("left", ["term-7", "moving"])
def test_what_two_controllers_have_left_is_found_by_one(volume: Path, left: str) -> None:
    """Also where one of the ways between one and two was cut short."""
    before = files(volume)
    (volume / left).mkdir()
    (volume / "job_state").rename(volume / left / "job_state")
    terms.return_to_one(volume)
    assert files(volume) == before


def test_of_several_terms_the_last_one_counts(volume: Path) -> None:
    for term, text in (("term-9", "of long ago"), ("term-10", "jobs")):
        (volume / term).mkdir()
        (volume / term / "node_state").write_text(text)
    terms.return_to_one(volume)
    assert (volume / "node_state").read_text() == "jobs"


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
