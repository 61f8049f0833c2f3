"""The document behind every preview: where it comes from, its outcome, and the exit status that a script acts on."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
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
    run_again,
)
from cli.stack import Stack, open_stack
from config import load_config
from config.cluster import ClusterConfig
from slurm.policy import policy_document
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


UID_LABEL = "batch.kubernetes.io/controller-uid"
CHANGED = PolicyPlan(changes=("~ account ml: fairshare 7 => 10",), notes=())


def configuration(**sections: Any) -> ClusterConfig:
    users = {"alice": {"uid": 10001, "accounts": ["ml"]}}
    return load_config({**stacks.dev(), "users": users, "accounts": {"ml": {"fairshare": 10}}, **sections})


@dataclass(frozen=True, kw_only=True)
class Slurmdbd(PlayedKubectl):
    """Answers from what is given here; notes what it was asked."""

    ready: str = "True"
    printed: str = ""
    complained: str = ""
    code: int = 0
    job_state: str = "Complete"
    calls: list[tuple[str, ...]] = field(default_factory=list)
    stdin: list[str] = field(default_factory=list)

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, seconds: float = 600
    ) -> subprocess.CompletedProcess[str]:
        assert not check or not self.complained
        assert seconds == 600, "a large policy may take minutes"
        self.calls.append(arguments)
        self.stdin.append(stdin or "")
        code = self.code or int(bool(self.complained))
        return subprocess.CompletedProcess(arguments, code, self.printed, self.complained)

    def items(self, *arguments: str) -> list[dict[str, Any]]:
        if UID_LABEL in arguments:
            ended = [{"state": {"terminated": {"exitCode": 0 if self.job_state == "Worked" else 1}}}]
            labels = {UID_LABEL: "u1"}
            return [{"metadata": {"labels": labels}, "status": {"containerStatuses": ended}}]
        if arguments[0] == "pod":
            return [{"status": {"conditions": [{"type": "Ready", "status": self.ready}]}}] if self.ready else []
        status = {"conditions": [{"type": self.job_state, "status": "True"}]}
        return [{"metadata": {"uid": "u1", "name": "policy-12345678"}, "status": status}] if self.job_state else []


@pytest.mark.parametrize("kubectl", [None, Slurmdbd(ready=""), Slurmdbd(ready="False")])
def test_nothing_is_told_of_a_first_start_and_nothing_without_accounting(kubectl: Slurmdbd | None) -> None:
    assert planned_policy(kubectl, configuration()) is None
    without = configuration(accounting={"enabled": False}, accounts={}, users={})
    assert planned_policy(Slurmdbd(), without) is None
    assert policy_of(cast("Stack", SimpleNamespace(config=without))) is None, "no cluster is looked for"


def test_slurm_is_asked_in_slurmdbd_s_pod_with_the_document_on_standard_input() -> None:
    kubectl = Slurmdbd(printed=json.dumps({"changes": list(CHANGED.changes), "notes": []}))
    assert planned_policy(kubectl, configuration()) == CHANGED
    (asked,) = kubectl.calls
    assert asked[:7] == ("exec", "-i", "-n", "slurm", "slurmdbd-0", "-c", "slurmdbd")
    assert asked[-3:] == ("/usr/libexec/slurmstack/policy", "--plan", "-")
    assert kubectl.stdin == [policy_document(configuration())]


@pytest.mark.parametrize(
    ("planned", "state", "deleted"),
    [
        (CHANGED, "Complete", True),
        (CHANGED, "Worked", True),
        (CHANGED, "Failed", False),
        (PolicyPlan(changes=(), notes=("! account x",)), "Complete", False),
        (None, "Complete", False),
    ],
)
def test_the_finished_job_goes_only_where_slurm_has_something_else(
    planned: PolicyPlan | None, state: str, deleted: bool
) -> None:
    kubectl = Slurmdbd(job_state=state)
    run_again(kubectl, configuration(), planned)
    assert any(call[:2] == ("delete", "job") for call in kubectl.calls) == deleted


@pytest.mark.parametrize("code", [0, NO_SLURMDBD])
def test_a_slurmdbd_that_cannot_tell_stops_no_preview(code: int) -> None:
    planned = planned_policy(Slurmdbd(complained="policy: no, says Slurm", code=code), configuration())
    why = "slurmdbd does not answer" if code else "policy: no, says Slurm"
    note = f"! the policy in force cannot be compared: {why}"
    assert planned == PolicyPlan(changes=(), notes=(note,))
