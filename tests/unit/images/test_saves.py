"""Saves of slurmctld that were cut short, after each of its steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from images.common import terms

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


@pytest.mark.parametrize("ending", ["new", "old"])
def test_what_is_no_file_is_none_of_slurmctld_s(tmp_path: Path, ending: str) -> None:
    """Somebody has put something aside; slurmctld would never start."""
    (tmp_path / f"kept.{ending}").mkdir()
    (tmp_path / f"link.{ending}").symlink_to("elsewhere")
    (tmp_path / "job_state").symlink_to("nowhere")
    (tmp_path / "job_state.old").write_text("old")
    assert terms.finish_saves(tmp_path) == []
    assert {path.name for path in tmp_path.iterdir()} == {
        f"kept.{ending}", f"link.{ending}", "job_state", "job_state.old",
    }  # fmt: skip
