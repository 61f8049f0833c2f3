"""Taking a cluster down: what goes, in which order, and what is not touched where somebody else deletes the rest."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from cli.change import destroy
from cli.change.destroy import What, destroy_cluster
from cli.change.job_effects import Touched
from cli.change.jobs import JobsTouched
from cli.change.plan import plan
from cli.commands import destroy as destroy_command
from cli.errors import Failure, Refused
from cli.stack import open_stack
from config import load_config
from local.report import open_report
from tests import stacks
from tests.fakes.kubectl import FakeCluster, thing
from tests.unit.cli.command_line import stack_file


class Leaving(FakeCluster):
    """A cluster with a worker that takes two looks to leave.

    Deleting the namespace works at once, and an `up` that has waited for that makes all anew at once.
    """

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        if arguments[:2] == ("get", "--ignore-not-found") and "pod" in arguments:
            self.deleted.append("(looked for pods)")
            if self.deleted.count("(looked for pods)") == 3:
                self.items_there[:] = [item for item in self.items_there if item["metadata"]["name"] != "default-0"]
        elif arguments[:2] == ("delete", "namespace"):
            self.items_there[:] = [made(item["kind"], item["metadata"]["name"], "2") for item in self.items_there]
        if "app.kubernetes.io/component=worker" in arguments:
            workers = [item for item in self.items_there if item["metadata"]["name"] == "default-0"]
            return subprocess.CompletedProcess(arguments, 0, json.dumps({"items": workers}), "")
        return super().run(*arguments, stdin=stdin, check=check)


def made(kind: str, name: str, uid: str, **more: Any) -> dict[str, Any]:
    item = thing(kind, name, **more)
    return {**item, "metadata": {**item["metadata"], "uid": uid}}


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch) -> Leaving:
    monkeypatch.setattr(destroy, "POLL", 0)
    claim: dict[str, Any] = {"claimRef": {"namespace": "slurm"}}
    volume = made("PersistentVolume", "slurm-jail", "1", spec=claim)
    other = made("PersistentVolume", "other-jail", "1", spec={"claimRef": {"namespace": "other"}})
    return Leaving(items_there=[made("Namespace", "slurm", "1"), volume, other, thing("Pod", "default-0")])


def deleted(kubectl: Leaving, what: What) -> list[str]:
    config = load_config(stacks.dev())
    destroy_cluster(kubectl, config, open_report(), kill_jobs=False, what=what)
    return [command.split(" ")[0] for command in kubectl.deleted]


def test_workers_leave_before_anything_else_goes_and_what_the_next_up_makes_is_neither_deleted_nor_waited_for(
    kubectl: Leaving,
) -> None:
    assert deleted(kubectl, "all") == [
        "cronjob,statefulset,deployment,daemonset,job,podtemplate",
        "(looked",
        "(looked",
        "(looked",
        "cronjob,statefulset,deployment,daemonset,job,podtemplate",
        "persistentvolumeclaim",
        "persistentvolume",
        "clusterrolebinding,clusterrole,priorityclass",
        "namespace",
    ]
    assert "-l slurmstack/pool" in kubectl.deleted[0]
    (volumes,) = [command for command in kubectl.deleted if command.startswith("persistentvolume ")]
    assert "slurm-jail" in volumes
    assert "other-jail" not in volumes


def test_before_pulumi_destroys_only_what_runs_is_ended_and_no_data_is_touched(kubectl: Leaving) -> None:
    assert set(deleted(kubectl, "pods")) == {"cronjob,statefulset,deployment,daemonset,job,podtemplate", "(looked"}
    assert kubectl.deleted[-1] == "(looked for pods)"


def test_all_jobs_are_cancelled_those_that_wait_first_and_suspended_ones_too(
    kubectl: Leaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def asked(_: Leaving, _namespace: str, *command: str, **_more: float) -> subprocess.CompletedProcess[str]:
        said.append(" ".join(command))
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(destroy, "in_controller", asked)
    destroy_cluster(kubectl, load_config(stacks.dev()), open_report(), kill_jobs=True, what="pods")
    cancelled = [command for command in said if command.startswith("scancel")]
    assert cancelled == ["scancel --state=pending", "scancel --state=running", "scancel --state=suspended"]


def test_where_slurmctld_does_not_answer_no_job_is_cancelled_which_is_said_and_the_rest_goes_on(
    kubectl: Leaving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    patience: list[float] = []

    def silent(_: Leaving, _namespace: str, *command: str, seconds: float) -> subprocess.CompletedProcess[str]:
        patience.append(seconds)
        return subprocess.CompletedProcess(command, 124, "", f"no answer within {seconds:g} s")

    monkeypatch.setattr(destroy, "in_controller", silent)
    destroy_cluster(kubectl, load_config(stacks.dev()), open_report(), kill_jobs=True, what="pods")
    assert sum(patience) <= 10
    told = capsys.readouterr()
    assert "no job was cancelled, for slurmctld does not answer (no answer within 10 s)" in told.out + told.err
    assert "-l slurmstack/pool" in kubectl.deleted[0]


def test_a_cluster_of_the_pulumi_engine_is_not_destroyed_by_kubectl(tmp_path: Path) -> None:
    stack = open_stack(stack_file(tmp_path, stacks.dev()))
    namespace = made("Namespace", "slurm", "1")
    namespace["metadata"]["managedFields"] = [{"manager": "pulumi-kubernetes-1234"}]
    kubectl = Discreet(items_there=[namespace])
    with pytest.raises(Failure, match="was made by `pulumi up`"):
        destroy_command._refuse_other_engine(kubectl, stack, "kubectl")
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


def test_a_job_that_comes_while_another_command_has_the_lock_is_not_taken_down_unasked(
    kubectl: Leaving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = Touched(id="7", user="alice", partition="main", state="RUNNING", nodes=("x-0",), fate="ends", why="so")
    found = iter([JobsTouched(), JobsTouched(running=1, touched=(job,))])
    monkeypatch.setattr(destroy_command, "reach_if_made", lambda _: kubectl)
    monkeypatch.setattr(destroy_command, "held", lambda *_: nullcontext())
    monkeypatch.setattr(destroy_command, "jobs_destroyed", lambda *_, **__: next(found))
    with pytest.raises(Refused, match="1 job would end or never start: 7"):
        destroy_command.destroy(stack_file(tmp_path, stacks.dev()), yes=True, engine="kubectl")
    assert not kubectl.deleted


@pytest.mark.parametrize("left", ["the job runs", "stopped"])
@pytest.mark.parametrize("when", ["at once", "while another command had the lock"])
def test_a_restore_that_is_not_finished_is_not_forgotten_with_what_it_has_stopped(
    kubectl: Leaving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: str, when: str
) -> None:
    stopped = thing("StatefulSet", "slurmdbd", spec={"replicas": 0})
    stopped["metadata"]["annotations"] = {"slurmstack/replicas-before-restore": "1"}
    labels = {"app.kubernetes.io/component": "backup"}
    begun = [stopped] if left == "stopped" else [thing("Job", "restore", labels=labels), thing("StatefulSet", "login")]

    @contextmanager
    def held(*_: Any) -> Iterator[None]:
        kubectl.items_there.extend(begun)
        yield

    if when == "at once":
        kubectl.items_there.extend(begun)
    monkeypatch.setattr(destroy_command, "reach_if_made", lambda _: kubectl)
    monkeypatch.setattr(destroy_command, "held", held)
    monkeypatch.setattr(destroy_command, "jobs_destroyed", lambda *_, **__: JobsTouched())
    for more in ({}, {"kill_jobs": True}):
        with pytest.raises(Failure, match=r"a restore (runs|of the cluster .* was not finished)"):
            destroy_command.destroy(stack_file(tmp_path, stacks.dev()), yes=True, engine="kubectl", **more)
    assert not kubectl.deleted
