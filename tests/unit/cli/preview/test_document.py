"""The document behind every preview: where it comes from, its outcome, and the exit status that a script acts on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.change.change import Change, of_object
from cli.change.effects import Effect
from cli.change.jobs import JobsTouched
from cli.errors import CHANGES, REFUSED, Refused
from cli.preview import document
from cli.preview.document import NOT_COMPARED, PolicyPlan, Preview, exit_status
from cli.stack import open_stack
from tests import stacks
from tests.fakes.kubectl import FakeKubectl, listed, thing
from tests.unit.cli.command_line import stack_file

CHANGE = Change(action="update", resource=of_object(thing("Service", "login")))


def preview(**fields: Any) -> Preview:
    return Preview(stack="prod", against="cluster", **fields)


def effect(refused: str) -> Effect:
    return Effect(action="delete", kind="file system", name="jail", because=(), cost="files", refused=refused)


@pytest.mark.parametrize(
    ("fields", "outcome", "plain", "detailed"),
    [
        ({}, "none", 0, 0),
        ({"changes": (CHANGE,)}, "changes", 0, CHANGES),
        ({"changes": (CHANGE,), "effects": (effect("no"),)}, "refused", REFUSED, REFUSED),
        ({"policy": PolicyPlan(changes=("+ qos a",), notes=())}, "changes", 0, CHANGES),
        ({"policy": PolicyPlan(changes=(), notes=("! slurmdbd does not answer",))}, "none", 0, 0),
    ],
)
def test_the_outcome_decides_the_exit_status(fields: dict[str, Any], outcome: str, plain: int, detailed: int) -> None:
    shown = preview(**fields)
    assert shown.outcome == outcome
    assert exit_status(shown, detailed=False) == plain
    assert exit_status(shown, detailed=True) == detailed


LEAVES = Effect(action="delete", kind="StatefulSet", name="a", because=(), cost="pool 'a' leaves", refused="")
SHRINKS = Effect(action="update", kind="PersistentVolumeClaim", name="jail", because=(), cost="", refused="too small")


def answering(monkeypatch: pytest.MonkeyPatch, effects: tuple[Effect, ...], found: list[Change] | None) -> None:
    planned = SimpleNamespace(effects=effects, exists=False, namespace="slurm")
    for name, answer in (("plan", planned), ("jobs_of_plan", JobsTouched())):
        monkeypatch.setattr(document, name, lambda *_, answer=answer, **__: answer)
    if found is not None:
        monkeypatch.setattr(document, "changes", lambda *_: found)


def of_cluster(directory: Path) -> Preview:
    kubectl = FakeKubectl(answers=[({"get", "pod"}, listed(), "")])
    return document.of_cluster(kubectl, open_stack(stack_file(directory, stacks.existing())))


def test_where_anything_is_refused_the_api_server_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answering(monkeypatch, (LEAVES, SHRINKS), None)
    shown = of_cluster(tmp_path)
    assert shown.refused == ("PersistentVolumeClaim jail: too small",)
    assert (shown.outcome, shown.notes) == ("refused", (NOT_COMPARED,))


def test_what_only_the_api_server_refuses_is_in_the_document_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answering(monkeypatch, (LEAVES,), None)

    def refuse(*_: Any) -> None:
        raise Refused("a webhook denied it: field is immutable", hint="set it back")

    monkeypatch.setattr(document, "changes", refuse)
    shown = of_cluster(tmp_path)
    assert (shown.outcome, shown.notes) == ("refused", (NOT_COMPARED,))
    assert shown.refused == ("Namespace slurm: a webhook denied it: field is immutable. set it back",)
