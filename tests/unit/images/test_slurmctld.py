"""slurmctld's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.controller.slurmctld import command


@pytest.mark.parametrize(
    ("files", "ignores"),
    [((), False), (("clustername",), True), (("clustername", "assoc_usage"), False)],
    ids=["first start", "killed in its first minutes", "later"],
)
def test_missing_state_is_ignored_only_where_none_was_ever_saved(
    tmp_path: Path, files: tuple[str, ...], ignores: bool
) -> None:
    for name in files:
        (tmp_path / name).touch()
    assert ("-i" in command(tmp_path)) == ignores
