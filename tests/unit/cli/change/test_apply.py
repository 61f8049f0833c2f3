"""Applying with kubectl: what is sent when, and what leaves the cluster, of whatever kind it is."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass, field
from typing import Any

import pytest

from cli.change.apply import apply
from cli.change.plan import Plan, plan, preview
from cli.errors import Failure, Refused
from cli.program.manifests import Manifest
from cli.program.recording import KeptValues
from config import load_config
from slurm.names import GENERATED, STACK
from tests import stacks
from tests.fakes.kubectl import OURS, FakeCluster, UpLock, thing
from tests.stacks import with_change

SET_LABEL = "applyset.kubernetes.io/part-of"
NAMESPACE = thing("Namespace", "slurm")
VOLUME = thing("PersistentVolume", "slurm-jail")
RIGHTS = [thing(kind, "slurm-health-watch") for kind in ("ClusterRole", "ClusterRoleBinding")]
CLASS = thing("PriorityClass", "slurm-placeholder")
"""Of an earlier version; it is in no stack any more."""


def planned_in(kubectl: FakeCluster, sections: dict[str, Any] | None = None) -> Plan:
    sections = sections or stacks.dev()
    return plan(kubectl, load_config(sections), sections, stack="test")


def fresh() -> tuple[FakeCluster, Plan]:
    """A cluster in which nothing of the stack is yet."""
    kubectl = FakeCluster(items_there=[])
    return kubectl, planned_in(kubectl)


def leaving_pool(kind: str = "StatefulSet", name: str = "old") -> tuple[FakeCluster, Plan]:
    """A cluster with a pool that the stack file no longer has."""
    pool = thing(kind, name, spec={"replicas": 2})
    pool["metadata"]["labels"] = {**OURS, "slurmstack/pool": name}
    kubectl = FakeCluster(items_there=[NAMESPACE, pool])
    return kubectl, planned_in(kubectl)


def test_what_is_in_no_namespace_and_left_the_stack_is_shown_and_deleted_and_no_volume_is() -> None:
    kubectl = FakeCluster(items_there=[NAMESPACE, VOLUME, *RIGHTS, CLASS])
    sections = with_change(stacks.dev(), "health", {"enabled": False})
    planned = planned_in(kubectl, sections)
    deleted = [(change.kind, change.name) for change in preview(kubectl, planned) if change.action == "delete"]
    assert sorted(deleted) == [
        ("ClusterRole", "slurm-health-watch"),
        ("ClusterRoleBinding", "slurm-health-watch"),
        ("PriorityClass", "slurm-placeholder"),
    ]
    apply(kubectl, planned, UpLock(kubectl))
    assert kubectl.deleted == [
        "clusterrole slurm-health-watch --ignore-not-found",
        "clusterrolebinding slurm-health-watch --ignore-not-found",
        "priorityclass slurm-placeholder --ignore-not-found",
    ]
    with_them = FakeCluster(items_there=[NAMESPACE, VOLUME, *RIGHTS])
    planned = planned_in(with_them)
    assert not [change for change in preview(with_them, planned) if change.action == "delete"]
    apply(with_them, planned, UpLock(with_them))
    assert with_them.deleted == [], "they are in this stack"


def test_a_job_that_failed_is_made_anew_and_one_that_has_done_its_work_is_not() -> None:
    names = {item.name for item in fresh()[1].objects if item.kind == "Job"}
    failed = next(name for name in names if name.startswith("users-"))
    ended = {name: {"type": "Failed" if name == failed else "Complete", "status": "True"} for name in names}
    there = [thing("Job", name, status={"conditions": [condition]}) for name, condition in ended.items()]
    kubectl = FakeCluster(items_there=[NAMESPACE, *there])
    apply(kubectl, planned_in(kubectl), UpLock(kubectl))
    assert [command.split()[:2] for command in kubectl.deleted] == [["job", failed]]


@pytest.mark.parametrize("leaves", [True, False])
def test_no_prune_can_ever_take_what_holds_data(leaves: bool) -> None:
    kubectl, planned = leaving_pool() if leaves else fresh()
    apply(kubectl, planned, UpLock(kubectl))
    sent = [item for given in kubectl.documents for item in given]
    in_set = {item["kind"] for item in sent if SET_LABEL in item["metadata"].get("labels", {})}
    for kinds, command in zip(kubectl.sent, kubectl.applied, strict=True):
        in_set |= set(kinds) if "--prune" in command else set()
    assert "StatefulSet" in in_set
    assert not in_set & {"PersistentVolumeClaim", "PersistentVolume", "Namespace"}
    assert "PersistentVolumeClaim" in {kind for kinds in kubectl.sent for kind in kinds}


@dataclass(frozen=True, kw_only=True)
class Keeping(FakeCluster):
    """Takes what is created as well, unless it has a complaint about keys."""

    complaint: str = ""

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        if self.complaint and GENERATED in (stdin or ""):
            return subprocess.CompletedProcess(arguments, 1, "", self.complaint)
        if arguments[0] == "create" and "--raw" not in arguments:
            arguments = ("apply", *arguments)
        return super().run(*arguments, stdin=stdin, check=check)


def keys(**other: str) -> dict[str, Any]:
    """The Secret with the keys of the stack, as somebody else has made them."""
    values = {**fresh()[1].kept.values, **other}
    data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items() if value}
    secret = thing("Secret", GENERATED, data=data)
    return {**secret, "metadata": {**secret["metadata"], "resourceVersion": "7"}}


MUNGE = "slurm-secrets-munge"


def test_a_key_that_is_added_is_refused_where_somebody_has_written_keys_since_they_were_read() -> None:
    there = [NAMESPACE, keys(**{MUNGE: ""})]
    kubectl = Keeping(items_there=there)
    planned = planned_in(kubectl)
    apply(kubectl, planned, UpLock(kubectl))
    (sent,) = [given[0] for given in kubectl.documents if given[0]["metadata"]["name"] == GENERATED]
    assert sent["metadata"]["resourceVersion"] == "7"
    modified = 'error: Operation cannot be fulfilled on secrets "x": the object has been modified; please apply'
    kubectl = Keeping(items_there=there, complaint=modified)
    with pytest.raises(Failure, match="another `slurmstack up` has made keys"):
        apply(kubectl, planned, UpLock(kubectl))
    assert not [command for command in kubectl.applied if "--prune" in command]


def test_a_damaged_key_is_named_and_nothing_is_made_with_it() -> None:
    for name, damaged in ((MUNGE, "AAAA"), (MUNGE, "AAA"), ("slurm-secrets-host-seed", "AAA")):
        with pytest.raises(Failure, match=f"Secret {GENERATED}: {name} is no such key"):
            planned_in(Keeping(items_there=[NAMESPACE, keys(**{name: damaged})]))


def test_new_keys_are_kept_before_anything_that_uses_them_is_sent() -> None:
    kubectl = Keeping(items_there=[])
    planned = planned_in(kubectl)
    apply(kubectl, planned, UpLock(kubectl))
    names = [{(item["kind"], item["metadata"]["name"]) for item in given} for given in kubectl.documents]
    kept = names.index({("Secret", GENERATED)})
    assert kubectl.documents[kept][0]["stringData"] == planned.kept.values != {}
    assert kubectl.applied[kept][1] == "create", "so that it overwrites none"
    assert kept < next(index for index, given in enumerate(names) if ("Secret", "munge-key") in given)
    assert "PersistentVolume" in kubectl.sent[0], "before the claims that they are reserved for"
    assert "PersistentVolumeClaim" not in kubectl.sent[0]


@pytest.mark.parametrize("kind", ["StatefulSet", "PodTemplate"])
def test_a_pool_leaves_only_after_slurm_has_taken_the_configuration_without_it(kind: str) -> None:
    kubectl, planned = leaving_pool(kind)

    def slurm_rejects_it() -> None:
        raise Failure("rejected")

    with pytest.raises(Failure, match="rejected"):
        apply(kubectl, planned, UpLock(kubectl), slurm_rejects_it)
    assert not [command for command in kubectl.applied if "--prune" in command]
    sent = len(kubectl.applied)
    assert sent
    apply(kubectl, planned, UpLock(kubectl), lambda: kubectl.applied.append(("accepted",)))
    order = ["prune" if "--prune" in command else command[0] for command in kubectl.applied[sent:]]
    assert order.index("accepted") < order.index("prune")
    kubectl = FakeCluster(items_there=[NAMESPACE])
    apply(kubectl, planned_in(kubectl), UpLock(kubectl), lambda: pytest.fail("no pool leaves: no reason to wait"))
    assert [command for command in kubectl.applied if "--prune" in command]


def test_a_cluster_that_is_half_restored_is_not_started_by_an_apply() -> None:
    stopped = thing("StatefulSet", "cpu")
    stopped["metadata"]["namespace"] = "slurm"
    stopped["metadata"]["annotations"] = {"slurmstack/replicas-before-restore": "4"}
    kubectl = FakeCluster(items_there=[NAMESPACE, stopped])
    with pytest.raises(Failure, match="a restore of the cluster in namespace 'slurm' was not finished"):
        planned_in(kubectl)


class Patched(FakeCluster):
    """Remembers what was patched as well."""

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        if arguments[0] == "patch":
            self.applied.append(arguments)
        return super().run(*arguments, stdin=stdin, check=check)


def of_objects(*objects: dict[str, Any], live: dict[tuple[str, str], Any] | None = None) -> Plan:
    present: dict[tuple[str, str], Any] = {("Namespace", "slurm"): NAMESPACE, **(live or {})}
    manifests = tuple(Manifest(document=document) for document in objects)
    return Plan(
        namespace="slurm", objects=manifests, kept=KeptValues({}), live=present, inside={}, outside=(), effects=()
    )


def test_a_volume_whose_claim_went_with_its_namespace_can_be_claimed_again() -> None:
    volumes = [{"kind": "PersistentVolume", "metadata": {"name": name}} for name in ("slurm-jail", "slurm-state")]
    phases = {("PersistentVolume", "slurm-jail"): "Released", ("PersistentVolume", "slurm-state"): "Bound"}
    live = {at: {"status": {"phase": phase}} for at, phase in phases.items()}
    cluster = Patched()
    apply(cluster, of_objects(*volumes, live=live), UpLock(cluster))
    (patch,) = [call for call in cluster.applied if call[0] == "patch"]
    assert patch[2] == "slurm-jail"
    assert json.loads(patch[-1]) == [{"op": "remove", "path": "/spec/claimRef/uid"}]


def test_a_pool_that_kubernetes_rolls_itself_is_named_with_the_patch_that_no_apply_can_make() -> None:
    default = {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    pools = [thing("StatefulSet", "default", spec={"updateStrategy": default})]
    with pytest.raises(Failure, match="default: the StatefulSet was made by an older version") as refused:
        plan(FakeCluster(items_there=[NAMESPACE, *pools]), load_config(stacks.dev()), stacks.dev(), stack="test")
    patch = str(refused.value.hint).partition(" -p ")[2].strip("'")
    assert json.loads(patch) == {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}}
    assert "kubectl --context test -n slurm patch" in str(refused.value.hint), "in this cluster"
    other = {**NAMESPACE, "metadata": {**NAMESPACE["metadata"], "annotations": {STACK: "prod"}}}
    with pytest.raises(Refused, match="is that of the stack 'prod'"):
        plan(FakeCluster(items_there=[other, *pools]), load_config(stacks.dev()), stacks.dev(), stack="test")


GONE = "Certificate.cert-manager.io"


@dataclass(frozen=True, kw_only=True)
class WithSet(FakeCluster):
    """A cluster with an apply set, from which an operator was removed with its kinds."""

    kinds: list[str] = field(default_factory=lambda: [GONE, "ConfigMap"])

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_: float
    ) -> subprocess.CompletedProcess[str]:
        done = super().run(*arguments, stdin=stdin, check=check)
        asks = arguments[0] == "get" and any(GONE in word for word in arguments)
        if asks or ("--prune" in arguments and GONE in self.kinds):
            unknown = f'error: the server doesn\'t have a resource type "{GONE}"'
            if check:
                raise Failure(unknown)
            return subprocess.CompletedProcess(arguments, 1, "", unknown)
        if arguments[0] == "annotate":
            self.kinds[:] = arguments[-1].partition("=")[2].split(",")
        if arguments[:3] == ("get", "--ignore-not-found", "secret"):
            annotations = {"applyset.kubernetes.io/contains-group-kinds": ",".join(self.kinds)}
            done.stdout = json.dumps({"items": [{"metadata": {"annotations": annotations}}]})
        if arguments[:3] == ("get", "--ignore-not-found", "ConfigMap"):
            done.stdout = json.dumps({"items": [thing("ConfigMap", "old")]})
        return done


def test_a_kind_that_the_cluster_no_longer_knows_stops_neither_preview_nor_apply() -> None:
    kubectl = WithSet()
    found = preview(kubectl, of_objects())
    assert [(change.action, change.kind, change.name) for change in found] == [("delete", "ConfigMap", "old")]
    apply(kubectl, of_objects(NAMESPACE), UpLock(kubectl))
    assert kubectl.kinds == ["ConfigMap"]
    assert len([call for call in kubectl.applied if "--prune" in call]) == 2
