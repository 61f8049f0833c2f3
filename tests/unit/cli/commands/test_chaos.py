"""`chaos` breaks nothing where it was not really meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands.chaos import chaos
from tests import stacks
from tests.unit.cli.command_line import stack_file


def test_a_dry_run_asks_nobody_and_prints_the_same_each_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = stack_file(tmp_path, stacks.existing())
    chaos(file, seed=7, dry_run=True)
    first = capsys.readouterr().out
    chaos(file, seed=7, dry_run=True)
    assert capsys.readouterr().out == first
    assert first.startswith("seed 7\n  10.0 s  ")
    assert "elastic" not in first, "the stack has none"
