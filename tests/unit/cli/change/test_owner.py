"""A stack of another name, by a wrong file or a wrong context, gets at no cluster, and questions name all of that."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cli.change import engine_plan as engines
from cli.change.owner import REPLICAS_BEFORE, refuse_takeover
from cli.change.plan import plan
from cli.commands import backup, destroy, jail, rotate
from cli.errors import Failure, Refused
from cli.jail import roots
from cli.stack import Stack, open_stack
from components.secrets import JWT_KEY_BYTES
from slurm.names import GENERATED, STACK
from tests import stacks
from tests.fakes.kubectl import FakeCluster, thing
from tests.unit.cli.command_line import stack_file

JWT = base64.b64encode(bytes(JWT_KEY_BYTES)).decode()


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    """The stack `test`."""
    return open_stack(stack_file(tmp_path, stacks.dev()))


def cluster(of: str | None) -> FakeCluster:
    namespace = thing("Namespace", "slurm")
    if of is not None:
        namespace["metadata"]["annotations"] = {STACK: of}
    secret = thing("Secret", GENERATED, data={"slurm-secrets-jwt": base64.b64encode(JWT.encode()).decode()})
    return FakeCluster(context="admin@prod", items_there=[namespace, secret])


def test_a_cluster_of_another_stack_is_not_planned(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = cluster("prod")
    with pytest.raises(Refused, match="is that of the stack 'prod', and this is the stack 'test'") as caught:
        plan(kubectl, stack.config, stack.sections, stack=stack.name)
    mend = f"kubectl --context admin@prod annotate --overwrite namespace slurm {STACK}=test"
    assert mend in caught.value.hint, "in the right cluster, which is this stack's then"
    monkeypatch.setattr(engines, "reach", lambda _: kubectl)
    with pytest.raises(Refused, match="of the stack 'prod'"):
        engines.against_state_and_cluster(stack, {})


def test_a_cluster_of_the_pulumi_engine_is_not_destroyed_by_kubectl(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = thing("Namespace", "slurm")
    namespace["metadata"]["managedFields"] = [{"manager": "pulumi-kubernetes-1234"}]
    kubectl = Discreet(items_there=[namespace])
    monkeypatch.setattr(destroy, "reach_if_made", lambda _: kubectl)
    with pytest.raises(Failure, match="was made by `pulumi up`"):
        destroy.destroy(stack.file, engine="kubectl", yes=True)
    with pytest.raises(Failure, match="was made by `pulumi up`"):
        plan(kubectl, stack.config, stack.sections, stack="test")


class Discreet(FakeCluster):
    """Tells who has set a field only where that is asked for, as kubectl does."""

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        done = super().run(*arguments, stdin=stdin, check=check)
        if arguments[0] != "get" or "--show-managed-fields" in arguments:
            return done
        found = json.loads(done.stdout)
        for item in found["items"]:
            item["metadata"].pop("managedFields", None)
        return subprocess.CompletedProcess(arguments, 0, json.dumps(found), "")


def test_a_namespace_of_somebody_else_is_neither_filled_nor_deleted() -> None:
    with pytest.raises(Failure, match="belongs to something else"):
        refuse_takeover({"metadata": {"name": "slurm", "labels": {}}})


COMMANDS: dict[str, Callable[[Path], Any]] = {
    "destroy": lambda file: destroy.destroy(file, engine="kubectl"),
    "rotate": lambda file: rotate.rotate("jwt", file),
    "restore": lambda file: backup.restore(file, what=["state"]),
    "jail remove": lambda file: jail.remove("old", file),
}


@pytest.fixture
def carry_out(monkeypatch: pytest.MonkeyPatch, stack: Stack) -> Callable[..., None]:
    def carry_out(command: str, of: str, *there: dict[str, Any]) -> None:
        kubectl = cluster(of)
        kubectl.items_there.extend(there)
        monkeypatch.setattr(destroy, "reach_if_made", lambda _: kubectl)
        for module in (rotate, backup, jail):
            monkeypatch.setattr(module, "reach", lambda _: kubectl)
        monkeypatch.setattr(backup, "chosen", lambda *_: {"id": "20261127T020000Z"})
        monkeypatch.setattr(backup, "running_jobs", lambda *_: [])
        monkeypatch.setattr(destroy._Order, "judge", lambda *_: None)
        monkeypatch.setattr(roots, "refuse_used", lambda *_: None)
        monkeypatch.setattr(jail, "held", lambda *_: nullcontext())
        COMMANDS[command](stack.file)

    return carry_out


@pytest.mark.parametrize("command", COMMANDS)
def test_a_cluster_of_another_stack_is_not_touched(carry_out: Callable[..., None], command: str) -> None:
    with pytest.raises(Refused, match="is that of the stack 'prod'"):
        carry_out(command, "prod")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_question_names_namespace_context_stack_and_file(
    carry_out: Callable[..., None], stack: Stack, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Failure) as caught:
        carry_out(command, "test")
    printed = capsys.readouterr()
    where = f"namespace slurm of context admin@prod (stack test, {stack.file})"
    assert where in printed.out + printed.err + caught.value.message


@pytest.mark.parametrize("command", ["rotate", "jail remove"])
@pytest.mark.parametrize("how", ["runs", "was cut short"])
def test_what_a_restore_has_half_done_is_not_worked_on(carry_out: Callable[..., None], command: str, how: str) -> None:
    left = thing("StatefulSet", "controller", spec={"replicas": 0})
    left["metadata"]["annotations"] = {REPLICAS_BEFORE: "1"}
    job = thing("Job", "restore", labels={"app.kubernetes.io/component": "backup"})
    with pytest.raises(Failure, match="the job restore runs" if how == "runs" else "was not finished"):
        carry_out(command, "test", job if how == "runs" else left)
