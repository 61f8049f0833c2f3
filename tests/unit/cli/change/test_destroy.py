"""Taking a cluster down: what goes, in which order, and what stays for the next `up`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer

from cli.change.jobs import JobsTouched, Touched
from cli.change.owner import KEPT, KEPT_OF, ROTATING
from cli.change.plan import RIGHTS_OUTSIDE, plan
from cli.commands import destroy
from cli.engine import pulumi as engines
from cli.errors import Failure, Refused
from cli.stack import open_stack
from slurm.names import CONFIG_MAP, CONTROLLER, GENERATED, LOGIN
from tests import stacks
from tests.fakes.kubectl import OURS, FakeCluster, thing
from tests.unit.cli.command_line import stack_file


def made(item: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {**item, "metadata": {**item["metadata"], "uid": "1", **metadata}}


@dataclass(frozen=True, kw_only=True)
class Cluster(FakeCluster):
    """One whose objects go when they are deleted, with a worker that takes two looks to leave.

    It remembers labels and annotations. An `up` that has waited for the namespace to go makes it anew at once.
    """

    told: list[str] = field(default_factory=list)

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **more: float
    ) -> subprocess.CompletedProcess[str]:
        if arguments[0] in {"label", "annotate"}:
            self.told.append(" ".join(arguments))
        if "pod" in arguments[:3]:
            self.deleted.append("(looked for pods)")
            if self.deleted.count("(looked for pods)") == 3:
                self.items_there[:] = [item for item in self.items_there if item["kind"] != "Pod"]
        done = super().run(*arguments, stdin=stdin, check=check, **more)
        if arguments[0] == "get" and any("app.kubernetes.io/part-of=slurmstack" in word for word in arguments):
            found = [item for item in json.loads(done.stdout)["items"] if "labels" in item["metadata"]]
            done.stdout = json.dumps({"items": found})
        if arguments[0] == "delete":
            kinds, named = arguments[1].split(","), [word for word in arguments[2:4] if not word.startswith("-")]
            self.items_there[:] = [item for item in self.items_there if not self._goes(item, kinds, named)]
        if arguments[:2] == ("delete", "namespace"):
            self.items_there.append(made(thing("Namespace", "slurm"), uid="2"))
        return done

    def _goes(self, item: dict[str, Any], kinds: list[str], named: list[str]) -> bool:
        labelled = "labels" in item["metadata"]
        is_named = item["metadata"]["name"] in named if named and named != ["slurm"] else labelled
        return item["kind"].lower() in kinds and is_named


def claim(name: str, **spec: Any) -> dict[str, Any]:
    return thing("PersistentVolumeClaim", name, spec={"resources": {"requests": {"storage": "20Gi"}}, **spec})


def volume(name: str, namespace: str) -> dict[str, Any]:
    return made(thing("PersistentVolume", name, spec={"claimRef": {"namespace": namespace}}), uid=name)


def unlabelled(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}


def daemon(name: str, **pod: Any) -> dict[str, Any]:
    image = f"localhost/slurmstack-{name}:24.11-0123456789ab"
    return thing("StatefulSet", name, spec={"template": {"spec": {"containers": [{"image": image}], **pod}}})


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(destroy, "POLL", 0)
    monkeypatch.setattr(destroy, "GONE_SECONDS", 1)
    return Cluster(
        items_there=[
            made(thing("Namespace", "slurm")),
            claim("jail", volumeName="slurm-jail"),
            claim("controller-state", volumeName="pvc-1234"),
            made(claim("scratch-default-0"), ownerReferences=[{"kind": "Pod"}]),
            volume("slurm-jail", "slurm"),
            volume("other-jail", "other"),
            unlabelled("Secret", GENERATED),
            unlabelled("Secret", "my-backup-credentials"),
            thing("Secret", "munge-key"),
            thing("ConfigMap", CONFIG_MAP, data={"slurm.conf": "ClusterName=slurm\n"}),
            daemon(CONTROLLER),
            daemon(LOGIN, volumes=[{"name": "homes", "persistentVolumeClaim": {"claimName": "homes"}}]),
            thing("CronJob", "backup"),
            thing("Pod", "default-0"),
        ]
    )


Call = Callable[..., None]


@pytest.fixture
def call(kubectl: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """The command, with --yes, where no data is on this machine."""

    def call(
        engine: str = "kubectl",
        jobs: Callable[[], JobsTouched] = JobsTouched,
        *,
        protect: bool = False,
        yes: bool = True,
        **more: Any,
    ) -> None:
        monkeypatch.setattr(destroy, "choose", lambda *_: engine)
        monkeypatch.setattr(destroy, "jobs_destroyed", lambda *_, **__: jobs())
        sections = {**stacks.existing(), "cluster": {"namespace": "slurm"}, "protect": protect}
        destroy.destroy(stack_file(tmp_path, sections), yes=yes, engine=engine, **more)

    monkeypatch.setattr(destroy, "reach_if_made", lambda _: kubectl)
    monkeypatch.setattr(destroy, "held", lambda *_: nullcontext())
    monkeypatch.setattr(engines, "run", lambda *_: 0)
    monkeypatch.setattr(engines, "refuse_locked", lambda _: None)
    return call


WORKLOADS = "cronjob,statefulset,deployment,daemonset,job,podtemplate"


def test_workers_leave_before_anything_else_goes_and_what_the_next_up_makes_is_neither_deleted_nor_waited_for(
    kubectl: Cluster, call: Call
) -> None:
    call(delete_data=True)
    kinds = [command.split(" ")[0] for command in kubectl.deleted]
    pods = ["(looked"] * 3
    data = ["persistentvolumeclaim", "persistentvolume"]
    assert kinds == [WORKLOADS, *pods, WORKLOADS, *data, RIGHTS_OUTSIDE, "namespace"]
    assert "-l slurmstack/pool" in kubectl.deleted[0]
    (volumes,) = [command for command in kubectl.deleted if command.startswith("persistentvolume ")]
    assert "slurm-jail" in volumes
    assert "other-jail" not in volumes


def test_before_pulumi_destroys_only_what_runs_is_ended_and_all_jobs_are_cancelled_those_that_wait_first(
    kubectl: Cluster, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(_: Cluster, _namespace: str, *command: str, seconds: float) -> subprocess.CompletedProcess[str]:
        asked.append(" ".join(command))
        return subprocess.CompletedProcess(command, 0, "", f"{seconds}")

    monkeypatch.setattr(destroy, "in_controller", answer)
    call(engine="pulumi", delete_data=True, kill_jobs=True)
    assert {command.split(" ")[0] for command in kubectl.deleted} == {WORKLOADS, "(looked"}
    assert kubectl.deleted[-1] == "(looked for pods)"
    assert asked[1:] == ["scancel --state=pending", "scancel --state=running", "scancel --state=suspended"]


def test_a_job_that_comes_while_another_command_has_the_lock_is_not_taken_down_unasked(
    kubectl: Cluster, call: Call
) -> None:
    job = Touched(id="7", user="alice", partition="main", state="RUNNING", nodes=("x-0",), effect="ends", why="so")
    found = iter([JobsTouched(), JobsTouched(running=1, touched=(job,))])
    with pytest.raises(Refused, match="1 job would end or never start: 7"):
        call(jobs=lambda: next(found))
    assert not kubectl.deleted


def test_a_restore_that_is_not_finished_is_not_forgotten_with_what_it_has_stopped(
    kubectl: Cluster, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = thing("StatefulSet", "slurmdbd", spec={"replicas": 0})
    stopped["metadata"]["annotations"] = {"slurmstack/replicas-before-restore": "1"}

    @contextmanager
    def held(*_: Any) -> Iterator[None]:
        kubectl.items_there.append(stopped)
        yield

    monkeypatch.setattr(destroy, "held", held)
    with pytest.raises(Failure, match=r"a restore of the cluster .* was not finished"):
        call(kill_jobs=True)
    assert not kubectl.deleted


def test_claims_volumes_and_keys_stay_labelled_and_what_others_have_put_there_and_all_else_goes(
    kubectl: Cluster, call: Call
) -> None:
    call()
    assert {(item["kind"], item["metadata"]["name"]) for item in kubectl.items_there} == {
        ("Namespace", "slurm"),
        ("PersistentVolumeClaim", "jail"),
        ("PersistentVolumeClaim", "controller-state"),
        ("PersistentVolumeClaim", "scratch-default-0"),  # Kubernetes itself deletes it with its pod
        ("PersistentVolume", "slurm-jail"),
        ("PersistentVolume", "other-jail"),
        ("Secret", GENERATED),
        ("Secret", "my-backup-credentials"),
    }
    noted, rotated, labelled = kubectl.told
    assert rotated == f"annotate secret {GENERATED} -n slurm {ROTATING}-"
    told = {"cluster_name": "slurm", "slurm": "24.11", "root": "", "homes": True}
    assert f"{KEPT_OF}={json.dumps(told)}" in noted
    assert labelled == f"label namespace slurm {KEPT}=true --overwrite --field-manager=slurmstack"
    assert not any(GENERATED in line for line in kubectl.deleted)
    kubectl.told.clear()
    call()
    assert not any(KEPT_OF in line for line in kubectl.told), "cut short and finished, it keeps what was noted"


@pytest.mark.parametrize(
    ("of", "told"),
    [
        ({"cluster_name": "other"}, "slurm.cluster_name: the cluster's state is that of 'other'"),
        ({"slurm": "26.05"}, "slurm.version: the jail was filled with Slurm 26.05"),
        ({"homes": True}, "jail.homes: homes of this cluster are on a volume of their own"),
    ],
)
def test_data_of_another_cluster_is_refused_before_anything_is_touched(
    tmp_path: Path, of: dict[str, Any], told: str
) -> None:
    was = {"cluster_name": "slurm", "slurm": "24.11"} | of
    kept = made(thing("Namespace", "slurm"), labels={**OURS, KEPT: "true"}, annotations={KEPT_OF: json.dumps(was)})
    kubectl, stack = Cluster(items_there=[kept, claim("jail")]), open_stack(stack_file(tmp_path, stacks.dev()))
    with pytest.raises(Refused) as caught:
        plan(kubectl, stack.config, stack.sections, stack=stack.name)
    assert told in caught.value.message
    assert "--delete-data" in caught.value.hint
    assert not kubectl.applied
    if "homes" in of:
        kubectl.items_there.pop()
        planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
        assert planned.is_only_kept, "with a new jail they may lie elsewhere"


def test_a_protected_stack_may_go_but_not_its_data(kubectl: Cluster, call: Call) -> None:
    for refused in ({"delete_data": True}, {"engine": "pulumi"}):
        with pytest.raises(Refused, match="this stack is protected"):
            call(**refused, protect=True)
    assert not kubectl.deleted
    call(protect=True)
    assert kubectl.deleted


def test_data_goes_only_where_the_cluster_s_name_is_typed(
    kubectl: Cluster, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(destroy, "require_terminal", lambda: None)
    for typed, goes in (("y", False), ("", False), ("slurm", True)):
        monkeypatch.setattr(typer, "prompt", Mock(return_value=typed))
        call(yes=False, delete_data=True)
        assert bool(kubectl.deleted) == goes


def test_pulumi_s_engine_which_deletes_claims_is_not_started_unasked(kubectl: Cluster, call: Call) -> None:
    with pytest.raises(Refused, match=r"Pulumi's engine deletes the namespace .*: jail \(20Gi, all users' files"):
        call(engine="pulumi")
    assert not kubectl.deleted
    for item in kubectl.items_there:
        if item["kind"] == "PersistentVolume":
            item["spec"] = {"persistentVolumeReclaimPolicy": "Retain"}
    call(engine="pulumi")
    assert kubectl.deleted, "files on file systems outlive their claims"
