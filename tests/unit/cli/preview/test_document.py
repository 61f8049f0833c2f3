"""The document behind every preview: its outcome, and the exit status that a script acts on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.change.change import Change, of_object
from cli.change.effects import Effect
from cli.errors import CHANGES, FAILED, REFUSED, USAGE
from cli.preview.document import Preview, exit_status
from cli.preview.policy import PolicyPlan
from cli.preview.summary import summarize
from config import load_config
from tests import stacks
from tests.fakes.kubectl import thing

CHANGE = Change(action="update", resource=of_object(thing("Service", "login")))


def preview(**fields: Any) -> Preview:
    return Preview(stack="prod", against="cluster", summary=summarize(load_config(stacks.existing())), **fields)


def effect(refused: str) -> Effect:
    return Effect(action="delete", kind="file system", name="jail", because=(), cost="files", refused=refused)


@pytest.mark.parametrize(
    ("fields", "outcome", "plain", "detailed"),
    [
        ({}, "none", 0, 0),
        ({"notes": ("a pool leaves",)}, "none", 0, 0),
        ({"changes": (CHANGE,)}, "changes", 0, CHANGES),
        ({"changes": (CHANGE,), "effects": (effect(""),)}, "changes", 0, CHANGES),
        ({"changes": (CHANGE,), "effects": (effect("no"),)}, "refused", REFUSED, REFUSED),
        ({"policy": PolicyPlan(changes=("+ qos a",), notes=())}, "changes", 0, CHANGES),
        ({"policy": PolicyPlan(changes=("+ qos a",), notes=(), compared=False)}, "none", 0, 0),
    ],
)
def test_the_outcome_decides_the_exit_status(fields: dict[str, Any], outcome: str, plain: int, detailed: int) -> None:
    document = preview(**fields)
    assert document.outcome == outcome
    assert exit_status(document, detailed=False) == plain
    assert exit_status(document, detailed=True) == detailed


def test_no_exit_status_means_two_things() -> None:
    assert len({0, FAILED, USAGE, REFUSED, CHANGES, 130}) == 6


def test_a_script_reads_the_outcome_and_each_refusal_with_its_way_out() -> None:
    data = json.loads(json.dumps(preview(effects=(effect("set it back"),)).as_data()))
    assert (data["outcome"], data["refused"]) == ("refused", 1)
    assert data["refusals"] == ["file system jail: set it back"]
    assert data["summary"]["nodes"]["total"] == 6
