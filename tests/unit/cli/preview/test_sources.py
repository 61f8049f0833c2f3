"""Where a preview comes from: what cannot be applied is refused before it is tried."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.change.change import Change, of_object
from cli.change.effects import Effect
from cli.change.jobs import JobsTouched
from cli.preview import document as sources
from cli.preview.document import NOT_COMPARED, Preview
from cli.stack import open_stack
from tests import stacks
from tests.fakes.kubectl import FakeKubectl, listed, thing
from tests.unit.cli.command_line import stack_file

LEAVES = Effect(action="delete", kind="StatefulSet", name="a", because=(), cost="pool 'a' leaves", refused="")
SHRINKS = Effect(action="update", kind="PersistentVolumeClaim", name="jail", because=(), cost="", refused="too small")


def answering(monkeypatch: pytest.MonkeyPatch, effects: tuple[Effect, ...], found: list[Change] | None) -> None:
    planned = SimpleNamespace(effects=effects, exists=False)
    answers: dict[str, Any] = {"plan": planned, "jobs_of_plan": JobsTouched()} | (
        {} if found is None else {"compare": found}
    )
    for name, answer in answers.items():
        monkeypatch.setattr(sources, name, lambda *_, answer=answer, **__: answer)


def preview(directory: Path) -> Preview:
    kubectl = FakeKubectl(answers=[({"get", "pod"}, listed(), "")])
    return sources.of_cluster(kubectl, open_stack(stack_file(directory, stacks.existing())))


def test_what_can_never_change_is_refused_unless_it_is_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = [
        Change(action="replace", resource=of_object(thing(kind, "x"))) for kind in ("Job", "PersistentVolumeClaim")
    ]
    answering(monkeypatch, (LEAVES,), found)
    shown = preview(tmp_path)
    (refused,) = shown.refused
    assert refused.startswith("PersistentVolumeClaim x: a field differs that can never change")
    assert shown.effects[0] == LEAVES


def test_where_anything_is_refused_the_api_server_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answering(monkeypatch, (LEAVES, SHRINKS), None)
    shown = preview(tmp_path)
    assert shown.refused == ("PersistentVolumeClaim jail: too small",)
    assert (shown.outcome, shown.notes) == ("refused", (NOT_COMPARED,))
