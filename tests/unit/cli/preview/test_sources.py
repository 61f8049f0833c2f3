"""Where a preview comes from: what kubectl cannot apply is refused before it is tried."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.changes import Change
from cli.errors import Refused
from cli.preview import sources
from cli.preview.document import NOT_COMPARED
from cli.safety.jobs import JobsTouched
from cli.stack import open_stack
from tests import stacks
from tests.fakes.kubectl import FakeKubectl, listed
from tests.unit.cli.command_line import stack_file


def test_what_can_never_change_is_refused_unless_it_is_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = [Change(action="replace", kind=kind, name="x") for kind in ("Job", "PersistentVolumeClaim")]
    planned = SimpleNamespace(notes=("pool 'a' leaves",), exists=False)
    answers: dict[str, Any] = {"plan": planned, "compare": found, "of_kubectl": JobsTouched()}
    for name, answer in answers.items():
        monkeypatch.setattr(sources, name, lambda *_, answer=answer, **__: answer)
    preview = sources.of_cluster(
        FakeKubectl(answers=[({"get", "pod"}, listed(), "")]), open_stack(stack_file(tmp_path, stacks.existing()))
    )
    (refused,) = preview.refused
    assert refused.startswith("PersistentVolumeClaim x: a field differs that can never change")
    assert preview.notes == ("pool 'a' leaves",)


def test_a_refusal_before_anything_is_compared_says_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise Refused("jail.size: too small", hint="set it back")

    monkeypatch.setattr(sources, "plan", refuse)
    preview = sources.of_cluster(FakeKubectl(), open_stack(stack_file(tmp_path, stacks.existing())))
    assert preview.refused == ("jail.size: too small. set it back",)
    assert (preview.outcome, preview.notes) == ("refused", (NOT_COMPARED,))
