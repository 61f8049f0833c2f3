"""docs/comparison.md: what it says that we have is a command, a key of the stack file or a target of make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from cli.app import app
from config.schema import stack_file_schema
from tests.stacks import ROOT

SCHEMA = stack_file_schema()
NAMELESS = {"what it is"}
"""Rows that tell of no feature."""


def cells() -> dict[str, str]:
    """Feature -> what is said of slurmstack, from both tables; who is in both says the same in both."""
    found: dict[str, str] = {}
    for line in (ROOT / "docs/comparison.md").read_text(encoding="utf-8").splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and row[0] and row[0] not in {*NAMELESS, "---"}:
            assert found.setdefault(row[0], row[1]) == row[1], row[0]
    return found


CELLS = cells()


def _forms(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What a value may be: behind references, and each of several."""
    if reference := schema.get("$ref"):
        yield from _forms(SCHEMA["$defs"][reference.removeprefix("#/$defs/")])
    for other in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _forms(other)
    yield schema


def _has_key(key: str) -> bool:
    """Whether a stack file may have it; `*` is any name."""
    first, *others = key.split(".")
    at = [SCHEMA["properties"]["config"]["properties"].get(f"slurmstack:{first}")]
    for part in others:
        forms = [form for schema in at if schema for form in _forms(schema)]
        at = [
            form.get("additionalProperties") if part == "*" else form.get("properties", {}).get(part) for form in forms
        ]
    return any(at)


def _is_there(named: str) -> bool:
    """Whether a command, a target of make or a key exists."""
    if command := re.fullmatch(r"slurmstack ([a-z-]+)", named):
        group = get_command(app)
        assert isinstance(group, TyperGroup)
        return command[1] in group.commands
    if target := re.fullmatch(r"make ([a-z-]+)", named):
        return re.search(rf"^{target[1]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE) is not None
    return _has_key(named)


def test_what_is_not_there_is_found_out() -> None:
    assert len(CELLS) > 25
    assert not any(map(_is_there, ["slurmstack fly", "make coffee", "worker_nodes.*.wings", "jails", "jail.wings"]))


@pytest.mark.parametrize("feature", CELLS)
def test_what_slurmstack_has_can_be_looked_up(feature: str) -> None:
    cell = CELLS[feature]
    names = re.findall(r"`([^`]+)`", cell)
    assert bool(names) != (cell == "no"), "a yes or a part names its command or key, a no names none"
    assert [name for name in names if not _is_there(name)] == []
