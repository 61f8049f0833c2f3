"""Applying with kubectl: what is sent when, and what leaves the cluster, of whatever kind it is."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest

from cli.change.apply import apply
from cli.change.change import Change
from cli.change.plan import Plan, changes, key, plan
from cli.errors import Failure, Refused
from cli.program.recording import KeptValues, Manifest
from config import load_config
from slurm.names import GENERATED, POOL_LABEL
from tests import stacks
from tests.fakes.kubectl import FakeCluster, FakeKubectl, UpLock, applied, listed, thing
from tests.stacks import with_change

NAMESPACE = thing("Namespace", "slurm")
VOLUME = thing("PersistentVolume", "slurm-jail", spec={})
RIGHTS = [applied(kind, "slurm-health-watch") for kind in ("ClusterRole", "ClusterRoleBinding")]
CLASS = applied("PriorityClass", "slurm-placeholder")
"""Of an earlier version; it is in no stack any more."""


def planned_in(kubectl: FakeCluster, sections: dict[str, Any] | None = None) -> Plan:
    sections = sections or stacks.dev()
    return plan(kubectl, load_config(sections), sections, stack="test")


def fresh() -> tuple[FakeCluster, Plan]:
    """A cluster in which nothing of the stack is yet."""
    kubectl = FakeCluster(items_there=[])
    return kubectl, planned_in(kubectl)


def test_what_left_the_stack_is_shown_and_deleted_and_no_data_and_nothing_of_others_is() -> None:
    claim, role = applied("PersistentVolumeClaim", "mount-old"), applied("Role", "health-watch")
    others = [
        thing("ConfigMap", "of-a-person"),
        thing("Job", "backup-20261130"),
        thing("Secret", "my-backup-credentials"),
    ]
    kubectl = FakeCluster(items_there=[NAMESPACE, VOLUME, *RIGHTS, CLASS, claim, role, *others])
    sections = with_change(stacks.dev(), "health", {"enabled": False})
    planned = planned_in(kubectl, sections)
    deleted = [(change.kind, change.name) for change in changes(kubectl, planned) if change.action == "delete"]
    assert sorted(deleted) == [
        ("ClusterRole", "slurm-health-watch"),
        ("ClusterRoleBinding", "slurm-health-watch"),
        ("PriorityClass", "slurm-placeholder"),
        ("Role", "health-watch"),
    ]
    apply(kubectl, planned, UpLock(kubectl))
    names = "clusterrole/slurm-health-watch clusterrolebinding/slurm-health-watch priorityclass/slurm-placeholder"
    assert kubectl.deleted == [f"{names} role/health-watch -n slurm --ignore-not-found --wait=false"]
    with_them = FakeCluster(items_there=[NAMESPACE, VOLUME, *RIGHTS])
    planned = planned_in(with_them)
    assert not [change for change in changes(with_them, planned) if change.action == "delete"]
    apply(with_them, planned, UpLock(with_them))
    assert with_them.deleted == [], "they are in this stack"


def test_what_an_operator_reads_leaves_with_the_stack_s_wish_for_it() -> None:
    rule = {**applied("PrometheusRule", "slurm"), "apiVersion": "monitoring.coreos.com/v1"}
    kubectl = FakeCluster(items_there=[NAMESPACE, rule])
    apply(kubectl, planned_in(kubectl), UpLock(kubectl))
    (words,) = kubectl.deleted
    assert words.startswith("prometheusrule.monitoring.coreos.com/slurm -n slurm")


def test_a_job_that_failed_is_made_anew_and_one_that_has_done_its_work_is_not() -> None:
    names = {item.name for item in fresh()[1].objects if item.kind == "Job"}
    failed = next(name for name in names if name.startswith("users-"))
    ended = {name: {"type": "Failed" if name == failed else "Complete", "status": "True"} for name in names}
    there = [thing("Job", name, status={"conditions": [condition]}) for name, condition in ended.items()]
    kubectl = FakeCluster(items_there=[NAMESPACE, *there])
    apply(kubectl, planned_in(kubectl), UpLock(kubectl))
    assert [command.split()[:2] for command in kubectl.deleted] == [["job", failed]]


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
    assert not any("Secret" in kinds for kinds in kubectl.sent)


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
    return Plan(namespace="slurm", objects=manifests, kept=KeptValues({}), live=present, inside={}, left=(), effects=())


def test_a_volume_whose_claim_went_with_its_namespace_can_be_claimed_again() -> None:
    volumes = [{"kind": "PersistentVolume", "metadata": {"name": name}} for name in ("slurm-jail", "slurm-state")]
    phases = {("PersistentVolume", "slurm-jail"): "Released", ("PersistentVolume", "slurm-state"): "Bound"}
    live = {at: {"status": {"phase": phase}} for at, phase in phases.items()}
    cluster = Patched()
    apply(cluster, of_objects(*volumes, live=live), UpLock(cluster))
    (patch,) = [call for call in cluster.applied if call[0] == "patch"]
    assert patch[2] == "slurm-jail"
    assert json.loads(patch[-1]) == [{"op": "remove", "path": "/spec/claimRef/uid"}]


# Comparing a stack with its cluster, with kubectl's answers recorded from a real one


def stateful_set(replicas: int, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "default", "namespace": "slurm", **metadata},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "slurmd", "image": "a"}]}}},
    }


def changed(live: dict[str, Any], wanted: dict[str, Any], after: Any = None, complaint: str = "") -> list[Change]:
    """What an apply of one object changes. `after`: what the API server would make of it, if not the object itself."""
    kubectl = FakeKubectl(answers=[({"--dry-run=server"}, after or wanted, complaint)])
    planned = Plan(
        namespace="slurm", objects=(Manifest(document=wanted),), kept=KeptValues({}), live={key(live): live}, inside={},
        left=(), effects=(),
    )  # fmt: skip
    return changes(kubectl, planned)


@pytest.mark.parametrize(("size", "first"), [(1, True), (2, False), (3, False)])
def test_a_pool_that_grows_is_sent_before_the_sixty_objects_that_are_as_they_were(size: int, first: bool) -> None:
    """`size`: of the pool that is there; the stack wants two nodes."""
    kubectl = FakeCluster(items_there=[NAMESPACE, VOLUME, stateful_set(size, labels={POOL_LABEL: "default"})])
    planned = planned_in(kubectl)
    apply(kubectl, planned, UpLock(kubectl))
    inside = next(given for given in kubectl.documents if any(item["kind"] == "StatefulSet" for item in given))
    assert (key(inside[0]) == ("StatefulSet", "default")) is first
    assert {key(item) for given in kubectl.documents for item in given} >= planned.wanted.keys(), "and nothing is lost"


def secret(value: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "data": {"munge.key": value}}


@pytest.mark.parametrize(
    ("live", "wanted", "after", "properties"),
    [
        (
            stateful_set(2, generation=4, resourceVersion="100", managedFields=[{"manager": "slurmstack"}]),
            stateful_set(3),
            listed(stateful_set(3, generation=5, resourceVersion="100", managedFields=[])),
            [("spec.replicas", 2, 3)],
        ),
        (secret("b2xk"), secret("bmV3"), None, [("data.munge.key", "<secret>", "<secret>")]),
        (stateful_set(2), stateful_set(2), None, []),
    ],
    ids=["in spite of what the server writes itself", "no secret is shown", "equal"],
)
def test_an_update_is_what_the_api_server_would_change(
    live: dict[str, Any], wanted: dict[str, Any], after: Any, properties: list[tuple[str, Any, Any]]
) -> None:
    found = changed(live, wanted, after)
    assert [change.action for change in found] == ["update"] * bool(properties)
    told = [(item.path, item.old, item.new) for change in found for item in change.properties]
    assert told == properties


@pytest.mark.parametrize(
    ("complaint", "failure"),
    [
        ('The Job "x" is invalid: spec.template: Invalid value: field is immutable', Refused),
        ("admission webhook denied", Failure),
    ],
)
def test_what_the_api_server_will_not_change_is_told_in_its_words(complaint: str, failure: type[Failure]) -> None:
    with pytest.raises(Failure, match=complaint) as caught:
        changed(stateful_set(2), stateful_set(2), complaint=complaint)
    assert type(caught.value) is failure
