"""What `destroy` keeps: it is neither deleted nor taken for something else, and said."""

from __future__ import annotations

import json
import subprocess
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cli.change import destroy
from cli.change.apply import apply
from cli.change.destroy import destroy_cluster
from cli.change.in_place import PUT_BACK
from cli.change.jobs import JobsTouched
from cli.change.owner import KEPT, KEPT_OF, ROTATING
from cli.change.plan import plan
from cli.commands import destroy as command
from cli.engine import pulumi as engines
from cli.errors import Refused
from cli.stack import Stack, open_stack
from config import load_config
from local.report import open_report
from slurm.names import CONFIG_MAP, CONTROLLER, GENERATED, LOGIN
from tests import stacks
from tests.fakes.kubectl import OURS, FakeCluster, UpLock, thing
from tests.stacks import with_change
from tests.unit.cli.command_line import stack_file


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


def controller(release: str) -> dict[str, Any]:
    image = f"localhost/slurmstack-controller:{release}-0123456789ab"
    return thing("StatefulSet", CONTROLLER, spec={"template": {"spec": {"containers": [{"image": image}]}}})


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch) -> Cluster:
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
            unlabelled("Secret", "slurmstack"),
            unlabelled("Secret", "my-backup-credentials"),
            thing("Secret", "munge-key"),
            thing("ConfigMap", CONFIG_MAP, data={"slurm.conf": "ClusterName=slurm\n"}),
            controller("24.11"),
            thing("Service", "login"),
            thing("CronJob", "backup"),
        ]
    )


def take_down(kubectl: Cluster) -> None:
    destroy_cluster(kubectl, load_config(stacks.dev()), open_report(), kill_jobs=False, what="all but data")


def test_claims_volumes_and_keys_stay_labelled_and_what_others_have_put_there_and_all_else_goes(
    kubectl: Cluster,
) -> None:
    take_down(kubectl)
    assert {(item["kind"], item["metadata"]["name"]) for item in kubectl.items_there} == {
        ("Namespace", "slurm"),
        ("PersistentVolumeClaim", "jail"),
        ("PersistentVolumeClaim", "controller-state"),
        ("PersistentVolumeClaim", "scratch-default-0"),  # Kubernetes itself deletes it with its pod
        ("PersistentVolume", "slurm-jail"),
        ("Secret", GENERATED),
        ("Secret", "my-backup-credentials"),
    }
    noted, rotated, labelled = kubectl.told
    assert rotated == f"annotate secret {GENERATED} -n slurm {ROTATING}-"
    assert f'{KEPT_OF}={{"cluster_name": "slurm", "slurm": "24.11"}}' in noted
    kept = "namespace/slurm persistentvolumeclaim/jail persistentvolumeclaim/controller-state"
    assert labelled == (
        f"label -n slurm {kept} persistentvolume/slurm-jail secret/{GENERATED} {KEPT}=true --overwrite "
        "--field-manager=slurmstack"
    )


@pytest.mark.parametrize("homes", [True, False])
def test_it_is_noted_where_homes_are(kubectl: Cluster, homes: bool) -> None:
    login = controller("24.11")
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("jail", *["homes"] * homes)]
    login["spec"]["template"]["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}, *volumes]
    login["metadata"] = {**login["metadata"], "name": LOGIN}
    kubectl.items_there.append(login)
    take_down(kubectl)
    assert f'"homes": {str(homes).lower()}' in kubectl.told[0]


def test_what_a_restore_has_left_stopped_may_be_of_another_release_than_its_pods(kubectl: Cluster) -> None:
    (there,) = [item for item in kubectl.items_there if item["metadata"]["name"] == CONTROLLER]
    there["metadata"] = {**there["metadata"], "annotations": {PUT_BACK: "20261126T020000Z"}}
    there["spec"]["replicas"] = 0
    take_down(kubectl)
    assert '"slurm": ""' in kubectl.told[0]


def test_a_destroy_that_is_run_again_keeps_what_was_noted_of_the_cluster(kubectl: Cluster) -> None:
    take_down(kubectl)
    kubectl.told.clear()
    take_down(kubectl)
    assert not any(KEPT_OF in line for line in kubectl.told)


def test_the_keys_go_last_but_for_the_set_so_that_what_was_cut_short_can_be_finished(kubectl: Cluster) -> None:
    take_down(kubectl)
    assert kubectl.deleted[-1] == "secret slurmstack -n slurm --ignore-not-found"
    assert not any(GENERATED in line for line in kubectl.deleted)


def test_where_there_is_no_volume_yet_nothing_is_kept(kubectl: Cluster) -> None:
    kubectl.items_there[:] = [item for item in kubectl.items_there if not item["kind"].startswith("Persistent")]
    take_down(kubectl)
    assert any(line.startswith("namespace slurm") for line in kubectl.deleted)
    assert not kubectl.told


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


def planned(kubectl: Cluster, stack: Stack) -> Any:
    return plan(kubectl, stack.config, stack.sections, stack=stack.name)


def test_up_goes_on_with_what_is_kept_and_takes_the_label_off_when_all_is_sent(tmp_path: Path) -> None:
    kubectl, stack = kept_stack(tmp_path)
    found = planned(kubectl, stack)
    assert found.is_only_kept
    apply(kubectl, found, UpLock(kubectl))
    assert kubectl.applied
    assert kubectl.told == [
        f"label -n slurm namespace/slurm persistentvolumeclaim/jail {KEPT}- --field-manager=slurmstack"
    ]


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
        planned(kubectl, stack)
    assert told in caught.value.message
    assert "--delete-data" in caught.value.hint
    assert not kubectl.applied


def test_with_a_new_jail_homes_may_lie_elsewhere_than_in_the_one_that_was_kept(tmp_path: Path) -> None:
    kubectl, stack = kept_stack(tmp_path, homes=True)
    kubectl.items_there.pop()
    assert planned(kubectl, stack).is_only_kept


def test_a_kept_volume_that_is_larger_than_the_stack_file_says_is_refused(tmp_path: Path) -> None:
    kubectl, stack = kept_stack(tmp_path)
    kubectl.items_there[1]["spec"]["resources"]["requests"]["storage"] = "900Ti"
    (effect,) = [effect for effect in planned(kubectl, stack).effects if effect.refused]
    assert effect.refused.startswith("jail.size: ")


def test_a_volume_whose_claim_is_gone_is_never_left_aside_for_an_empty_one(tmp_path: Path) -> None:
    volume = thing("PersistentVolume", "slurm-jail", spec={"claimRef": {"namespace": "slurm", "name": "jail"}})
    kubectl = Cluster(items_there=[volume])
    same = open_stack(stack_file(tmp_path, stacks.dev()))
    planned(kubectl, same)
    other = open_stack(stack_file(tmp_path, with_change(stacks.dev(), "jail.storage_class", "fast")))
    with pytest.raises(Refused, match=r"the volume slurm-jail has all users' files .* storage class fast"):
        planned(kubectl, other)
    volume["spec"]["claimRef"]["namespace"] = "another"
    planned(kubectl, other)


def called(
    monkeypatch: pytest.MonkeyPatch, kubectl: Cluster, file: Path, *, engine: str = "kubectl", **more: Any
) -> None:
    monkeypatch.setattr(command, "reach_if_made", lambda _: kubectl)
    monkeypatch.setattr(command, "held", lambda *_: nullcontext())
    monkeypatch.setattr(command, "choose", lambda *_: engine)
    monkeypatch.setattr(command, "jobs_destroyed", lambda *_, **__: JobsTouched())
    command.destroy(file, yes=True, engine=engine, **more)


def test_destroy_tells_what_it_keeps_and_how_to_go_on(
    kubectl: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called(monkeypatch, kubectl, stack_file(tmp_path, stacks.dev()))
    told = capsys.readouterr().out
    assert "kept in namespace slurm:\n  jail (20Gi, all users' files and the software in the jail)\n" in told
    assert "  controller-state (20Gi, the job queue and Slurm's other state)\n" in told
    assert f"  Secret {GENERATED} (keys of munge" in told
    assert "`slurmstack destroy --delete-data` deletes it for good" in told


def test_a_protected_stack_may_go_but_not_its_data(
    kubectl: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = stack_file(tmp_path, {**stacks.existing(), "cluster": {"namespace": "slurm"}, "protect": True})
    for refused in ({"delete_data": True}, {"engine": "pulumi"}):
        with pytest.raises(Refused, match="this stack is protected"):
            called(monkeypatch, kubectl, file, **refused)
    assert not kubectl.deleted
    called(monkeypatch, kubectl, file)
    assert kubectl.deleted


def test_pulumi_s_engine_which_deletes_claims_is_not_started_unasked(
    kubectl: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = stack_file(tmp_path, stacks.dev())
    with pytest.raises(Refused, match=r"Pulumi's engine deletes the namespace .*: jail \(20Gi, all users' files"):
        called(monkeypatch, kubectl, file, engine="pulumi")
    assert not kubectl.deleted
    for item in kubectl.items_there:
        if item["kind"] == "PersistentVolume":
            item["spec"] = {"persistentVolumeReclaimPolicy": "Retain"}
    monkeypatch.setattr(engines, "refuse_locked", lambda _: None)
    monkeypatch.setattr(engines, "run", lambda *_: 0)
    called(monkeypatch, kubectl, file, engine="pulumi")
    assert kubectl.deleted, "files on file systems outlive their claims"
