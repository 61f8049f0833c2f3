"""`chaos` breaks nothing where it was not really meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.commands.chaos import chaos
from cli.errors import Failure, Refused
from tests import stacks
from tests.stacks import with_change


def stack_file(directory: Path, sections: dict[str, Any]) -> Path:
    file = directory / "Pulumi.prod.yaml"
    document = {"config": {f"slurmstack:{name}": value for name, value in sections.items()}}
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return file


def test_a_protected_stack_wants_its_name_said(tmp_path: Path) -> None:
    file = stack_file(tmp_path, stacks.existing())
    with pytest.raises(Refused, match="this stack is protected") as caught:
        chaos(file)
    assert "--yes-on prod does it" in caught.value.hint
    with pytest.raises(Failure, match="--yes-on dev: this is the stack prod"):
        chaos(file, yes_on="dev")


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


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("users", {}, "this takes a user"),
        ("login.size", 0, "a login node"),
        ("accounting", {"enabled": False}, "and accounting"),
    ],
)
def test_what_it_needs_is_said(tmp_path: Path, path: str, value: Any, said: str) -> None:
    with pytest.raises(Failure, match=said):
        chaos(stack_file(tmp_path, with_change(stacks.existing(), path, value)), yes_on="prod")


def test_a_user_that_there_is_not_is_said(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="alise"):
        chaos(stack_file(tmp_path, stacks.existing()), user="alise", yes_on="prod")


def test_where_nothing_of_what_is_allowed_is_there_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="this stack has nothing of elastic that chaos could break"):
        chaos(stack_file(tmp_path, stacks.existing()), allow=["elastic"], dry_run=True)
