"""Taking a cluster down: what goes, in which order, and what stays for the next `up`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli.change.apply import apply
from cli.change.jobs import JobsTouched, Touched
from cli.change.owner import KEPT, KEPT_OF, ROTATING
from cli.change.plan import plan
from cli.commands import destroy
from cli.engine import pulumi as engines
from cli.errors import Failure, Refused
from cli.stack import Stack, open_stack
from slurm.names import CONFIG_MAP, CONTROLLER, GENERATED, LOGIN
from tests import stacks
from tests.fakes.kubectl import OURS, FakeCluster, UpLock, thing
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


def called(
    monkeypatch: pytest.MonkeyPatch,
    kubectl: FakeCluster,
    file: Path,
    *,
    engine: str = "kubectl",
    jobs: Callable[[], JobsTouched] = JobsTouched,
    lock: Any = lambda *_: nullcontext(),
    **more: Any,
) -> None:
    """The command, with --yes."""
    monkeypatch.setattr(destroy, "reach_if_made", lambda _: kubectl)
    monkeypatch.setattr(destroy, "held", lock)
    monkeypatch.setattr(destroy, "choose", lambda *_: engine)
    monkeypatch.setattr(destroy, "jobs_destroyed", lambda *_, **__: jobs())
    destroy.destroy(file, yes=True, engine=engine, **more)


def deleted(monkeypatch: pytest.MonkeyPatch, kubectl: FakeCluster, directory: Path, **how: Any) -> list[str]:
    """The kinds that go, in their order, where the data is somewhere else than on this machine."""
    monkeypatch.setattr(engines, "run", lambda *_: 0)
    sections = {**stacks.existing(), "cluster": {"namespace": "slurm"}, "protect": False}
    called(monkeypatch, kubectl, stack_file(directory, sections), **how)
    return [command.split(" ")[0] for command in kubectl.deleted]


def test_workers_leave_before_anything_else_goes_and_what_the_next_up_makes_is_neither_deleted_nor_waited_for(
    kubectl: Leaving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert deleted(monkeypatch, kubectl, tmp_path, delete_data=True) == [
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


def test_before_pulumi_destroys_only_what_runs_is_ended_and_all_jobs_are_cancelled_those_that_wait_first(
    kubectl: Leaving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def answer(_: Leaving, _namespace: str, *command: str, seconds: float) -> subprocess.CompletedProcess[str]:
        asked.append(" ".join(command))
        return subprocess.CompletedProcess(command, 0, "", f"{seconds}")

    monkeypatch.setattr(destroy, "in_controller", answer)
    kinds = deleted(monkeypatch, kubectl, tmp_path, engine="pulumi", delete_data=True, kill_jobs=True)
    assert set(kinds) == {"cronjob,statefulset,deployment,daemonset,job,podtemplate", "(looked"}
    assert kubectl.deleted[-1] == "(looked for pods)"
    assert asked[1:] == ["scancel --state=pending", "scancel --state=running", "scancel --state=suspended"]


def test_a_job_that_comes_while_another_command_has_the_lock_is_not_taken_down_unasked(
    kubectl: Leaving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = Touched(id="7", user="alice", partition="main", state="RUNNING", nodes=("x-0",), fate="ends", why="so")
    found = iter([JobsTouched(), JobsTouched(running=1, touched=(job,))])
    with pytest.raises(Refused, match="1 job would end or never start: 7"):
        called(monkeypatch, kubectl, stack_file(tmp_path, stacks.dev()), jobs=lambda: next(found))
    assert not kubectl.deleted


def test_a_restore_that_is_not_finished_is_not_forgotten_with_what_it_has_stopped(
    kubectl: Leaving, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stopped = thing("StatefulSet", "slurmdbd", spec={"replicas": 0})
    stopped["metadata"]["annotations"] = {"slurmstack/replicas-before-restore": "1"}

    @contextmanager
    def held(*_: Any) -> Iterator[None]:
        kubectl.items_there.append(stopped)
        yield

    with pytest.raises(Failure, match=r"a restore of the cluster .* was not finished"):
        called(monkeypatch, kubectl, stack_file(tmp_path, stacks.dev()), lock=held, kill_jobs=True)
    assert not kubectl.deleted


@dataclass(frozen=True, kw_only=True)
class Cluster(FakeCluster):
    """One whose objects go when they are deleted, and that remembers labels and annotations."""

    told: list[str] = field(default_factory=list)

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **more: float
    ) -> subprocess.CompletedProcess[str]:
        if arguments[0] in {"label", "annotate"}:
            self.told.append(" ".join(arguments))
        done = super().run(*arguments, stdin=stdin, check=check, **more)
        if arguments[0] == "get" and any("app.kubernetes.io/part-of=slurmstack" in word for word in arguments):
            found = [item for item in json.loads(done.stdout)["items"] if "labels" in item["metadata"]]
            done.stdout = json.dumps({"items": found})
        if arguments[0] == "delete":
            kinds, named = arguments[1].split(","), [word for word in arguments[2:3] if not word.startswith("-")]
            self.items_there[:] = [item for item in self.items_there if not self._goes(item, kinds, named)]
        return done

    def _goes(self, item: dict[str, Any], kinds: list[str], named: list[str]) -> bool:
        labelled = "labels" in item["metadata"]
        return item["kind"].lower() in kinds and (item["metadata"]["name"] in named if named else labelled)


def claim(name: str, **spec: Any) -> dict[str, Any]:
    return thing("PersistentVolumeClaim", name, spec={"resources": {"requests": {"storage": "20Gi"}}, **spec})


def unlabelled(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "uid": "1"}}


def daemon(name: str, **pod: Any) -> dict[str, Any]:
    image = f"localhost/slurmstack-{name}:24.11-0123456789ab"
    return thing("StatefulSet", name, spec={"template": {"spec": {"containers": [{"image": image}], **pod}}})


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(destroy, "POLL", 0)
    namespace = thing("Namespace", "slurm")
    namespace["metadata"] = {**namespace["metadata"], "uid": "1"}
    scratch = claim("scratch-default-0")
    scratch["metadata"] = {**scratch["metadata"], "ownerReferences": [{"kind": "Pod"}]}
    return Cluster(
        items_there=[
            namespace,
            claim("jail", volumeName="slurm-jail"),
            claim("controller-state", volumeName="pvc-1234"),
            scratch,
            thing("PersistentVolume", "slurm-jail", spec={}),
            unlabelled("Secret", GENERATED),
            unlabelled("Secret", "my-backup-credentials"),
            thing("Secret", "munge-key"),
            thing("ConfigMap", CONFIG_MAP, data={"slurm.conf": "ClusterName=slurm\n"}),
            daemon(CONTROLLER),
            daemon(LOGIN, volumes=[{"name": "homes", "persistentVolumeClaim": {"claimName": "homes"}}]),
            thing("Service", "login"),
            thing("CronJob", "backup"),
        ]
    )


@pytest.fixture
def take_down(whole: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[], None]:
    """Destroy it, and keep its data."""
    return lambda: called(monkeypatch, whole, stack_file(tmp_path, stacks.dev()))


def test_claims_volumes_and_keys_stay_labelled_and_what_others_have_put_there_and_all_else_goes(
    whole: Cluster, take_down: Callable[[], None]
) -> None:
    take_down()
    assert {(item["kind"], item["metadata"]["name"]) for item in whole.items_there} == {
        ("Namespace", "slurm"),
        ("PersistentVolumeClaim", "jail"),
        ("PersistentVolumeClaim", "controller-state"),
        ("PersistentVolumeClaim", "scratch-default-0"),  # Kubernetes itself deletes it with its pod
        ("PersistentVolume", "slurm-jail"),
        ("Secret", GENERATED),
        ("Secret", "my-backup-credentials"),
    }
    noted, rotated, labelled = whole.told
    assert rotated == f"annotate secret {GENERATED} -n slurm {ROTATING}-"
    told = {"cluster_name": "slurm", "slurm": "24.11", "root": "", "homes": True}
    assert f"{KEPT_OF}={json.dumps(told)}" in noted
    assert labelled == f"label namespace slurm {KEPT}=true --overwrite --field-manager=slurmstack"


def test_what_was_cut_short_can_be_finished_and_keeps_what_was_noted_of_the_cluster(
    whole: Cluster, take_down: Callable[[], None]
) -> None:
    take_down()
    assert not any(GENERATED in line for line in whole.deleted)
    whole.told.clear()
    take_down()
    assert not any(KEPT_OF in line for line in whole.told)


def kept_stack(tmp_path: Path, **of: Any) -> tuple[Cluster, Stack]:
    """A namespace as `destroy` leaves it, and the stack file of the next `up`."""
    was = {"cluster_name": "slurm", "slurm": "24.11"} | of
    namespace = thing("Namespace", "slurm")
    namespace["metadata"] = {
        "name": "slurm",
        "uid": "1",
        "labels": {**OURS, KEPT: "true"},
        "annotations": {KEPT_OF: json.dumps(was)},
    }
    return Cluster(items_there=[namespace, claim("jail")]), open_stack(stack_file(tmp_path, stacks.dev()))


def plan_of(whole: Cluster, stack: Stack) -> Any:
    return plan(whole, stack.config, stack.sections, stack=stack.name)


def test_up_goes_on_with_what_is_kept_and_takes_the_label_off_when_all_is_sent(tmp_path: Path) -> None:
    kubectl, stack = kept_stack(tmp_path)
    apply(kubectl, plan_of(kubectl, stack), UpLock(kubectl))
    assert kubectl.applied
    assert kubectl.told == [f"label namespace slurm {KEPT}- --field-manager=slurmstack"]


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
    kubectl, stack = kept_stack(tmp_path, **of)
    with pytest.raises(Refused) as caught:
        plan_of(kubectl, stack)
    assert told in caught.value.message
    assert "--delete-data" in caught.value.hint
    assert not kubectl.applied
    if "homes" in of:
        kubectl.items_there.pop()
        assert plan_of(kubectl, stack).is_only_kept, "with a new jail they may lie elsewhere"


def test_a_protected_stack_may_go_but_not_its_data(
    whole: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = stack_file(tmp_path, {**stacks.existing(), "cluster": {"namespace": "slurm"}, "protect": True})
    for refused in ({"delete_data": True}, {"engine": "pulumi"}):
        with pytest.raises(Refused, match="this stack is protected"):
            called(monkeypatch, whole, file, **refused)
    assert not whole.deleted
    called(monkeypatch, whole, file)
    assert whole.deleted


def test_pulumi_s_engine_which_deletes_claims_is_not_started_unasked(
    whole: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = stack_file(tmp_path, stacks.dev())
    with pytest.raises(Refused, match=r"Pulumi's engine deletes the namespace .*: jail \(20Gi, all users' files"):
        called(monkeypatch, whole, file, engine="pulumi")
    assert not whole.deleted
    for item in whole.items_there:
        if item["kind"] == "PersistentVolume":
            item["spec"] = {"persistentVolumeReclaimPolicy": "Retain"}
    monkeypatch.setattr(engines, "run", lambda *_: 0)
    called(monkeypatch, whole, file, engine="pulumi")
    assert whole.deleted, "files on file systems outlive their claims"
