"""The document behind every preview: where it comes from, its outcome, and the exit status that a script acts on."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli.change.change import Change, of_object
from cli.change.effects import Effect
from cli.errors import CHANGES, REFUSED, Refused
from cli.kubectl.client import NO_SLURMDBD
from cli.preview import document
from cli.preview.document import (
    NOT_COMPARED,
    PolicyPlan,
    Preview,
    exit_status,
    planned_policy,
    policy_of,
)
from cli.stack import Stack, open_stack
from config import load_config
from config.cluster import ClusterConfig
from tests import stacks
from tests.fakes.kubectl import FakeKubectl, PlayedKubectl, listed, thing
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


def test_what_only_the_api_server_refuses_is_in_the_document_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planned = SimpleNamespace(effects=(LEAVES,), exists=False, namespace="slurm")
    monkeypatch.setattr(document, "plan", lambda *_, **__: planned)

    def refuse(*_: Any) -> None:
        raise Refused("a webhook denied it: field is immutable", hint="set it back")

    monkeypatch.setattr(document, "changes", refuse)
    kubectl = FakeKubectl(answers=[({"get", "pod"}, listed(), "")])
    shown = document.of_cluster(kubectl, open_stack(stack_file(tmp_path, stacks.existing())))
    assert (shown.outcome, shown.notes) == ("refused", (NOT_COMPARED,))
    assert shown.refused == ("Namespace slurm: a webhook denied it: field is immutable. set it back",)


# The policy in preview and up: asked of Slurm where it runs, told from nothing where it does not


def configuration(**sections: Any) -> ClusterConfig:
    users = {"alice": {"uid": 10001, "accounts": ["ml"]}}
    return load_config({**stacks.dev(), "users": users, "accounts": {"ml": {"fairshare": 10}}, **sections})


@dataclass(frozen=True, kw_only=True)
class Slurmdbd(PlayedKubectl):
    """Answers from what is given here."""

    ready: str = "True"
    printed: str = ""
    complained: str = ""
    code: int = 0

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, seconds: float = 600
    ) -> subprocess.CompletedProcess[str]:
        del stdin
        assert not check or not self.complained
        assert seconds == 600, "a large policy may take minutes"
        code = self.code or int(bool(self.complained))
        return subprocess.CompletedProcess(arguments, code, self.printed, self.complained)

    def items(self, *_: str) -> list[dict[str, Any]]:
        return [{"status": {"conditions": [{"type": "Ready", "status": self.ready}]}}] if self.ready else []


@pytest.mark.parametrize("kubectl", [None, Slurmdbd(ready=""), Slurmdbd(ready="False")])
def test_nothing_is_told_of_a_first_start_and_nothing_without_accounting(kubectl: Slurmdbd | None) -> None:
    assert planned_policy(kubectl, configuration()) is None
    without = configuration(accounting={"enabled": False}, accounts={}, users={})
    assert planned_policy(Slurmdbd(), without) is None
    assert policy_of(cast("Stack", SimpleNamespace(config=without))) is None, "no cluster is looked for"


@pytest.mark.parametrize("code", [0, NO_SLURMDBD])
def test_a_slurmdbd_that_cannot_tell_stops_no_preview(code: int) -> None:
    planned = planned_policy(Slurmdbd(complained="policy: no, says Slurm", code=code), configuration())
    why = "slurmdbd does not answer" if code else "policy: no, says Slurm"
    note = f"! the policy in force cannot be compared: {why}"
    assert planned == PolicyPlan(changes=(), notes=(note,))
