"""What a switch tree adds to the graph, and that nothing is there without one."""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest

from cli.program.manifests import manifests
from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.graph.diff import Diff
from tests.recordings import record
from tests.stacks import with_change

KUBERNETES = "1.34"


def with_tree(sections: dict[str, Any]) -> dict[str, Any]:
    """The same stack with a switch tree."""
    return with_change(sections, "topology.plugin", "tree")


@pytest.fixture(scope="module")
def recording() -> Recording:
    """The stack on a foreign cluster, with a tree."""
    return record(with_tree(stacks.existing()), stack="test")


def test_turning_the_tree_on_adds_rights_changes_slurms_files_and_touches_no_pod() -> None:
    diff = Diff(stacks.existing(), with_tree(stacks.existing()))
    assert diff.added == [
        "slurm-topology",
        "slurm-topology-cluster-role",
        "slurm-topology-cluster-role-binding",
        "slurm-topology-role",
        "slurm-topology-role-binding",
    ]
    assert not diff.removed
    assert set(diff.changed) == {"slurm-configuration-files", "slurm-configuration-active"}


def test_a_stack_without_a_fabric_and_a_watcher_of_machines_has_no_right_outside_its_namespace() -> None:
    for stack in (stacks.dev(), stacks.existing()):
        sections = with_change(stack, "health.machines", {"follow": False})
        assert not record(sections, stack="test").of_type("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole")


def test_the_controller_may_only_read_nodes_and_pods(recording: Recording) -> None:
    rules = [
        rule
        for item in recording
        if item.name.startswith("slurm-topology-") and "rules" in item.inputs
        for rule in reveal(item.inputs)["rules"]
    ]
    assert sorted((rule["resources"], rule["verbs"]) for rule in rules) == [
        (["nodes"], ["list", "watch"]),
        (["pods"], ["list", "watch"]),
    ]


def test_rights_are_given_to_the_controllers_own_account(recording: Recording) -> None:
    bindings = [item for item in recording if item.name.startswith("slurm-topology-") and "subjects" in item.inputs]
    assert len(bindings) == 2
    names = {
        (item.type.rsplit(":", 1)[1], reveal(item.inputs)["metadata"]["name"])
        for item in recording.of_type("kubernetes:core/v1:ServiceAccount")
    }
    for item in bindings:
        inputs = reveal(item.inputs)
        (subject,) = inputs["subjects"]
        assert (subject["kind"], subject["name"]) in names
        assert subject["namespace"] == "slurm"
        assert inputs["roleRef"]["kind"] == item.type.rsplit(":", 1)[1].removesuffix("Binding")


def test_two_clusters_in_one_kubernetes_do_not_share_a_cluster_role() -> None:
    names = {
        reveal(item.inputs)["metadata"]["name"]
        for namespace in ("one", "two")
        for item in record(with_change(with_tree(stacks.existing()), "cluster.namespace", namespace), stack="test")
        if item.type.endswith(":ClusterRole")
    }
    assert names == {"one-topology", "two-topology", "one-health-watch", "two-health-watch"}


def test_what_is_in_no_namespace_is_not_left_behind_with_it(recording: Recording) -> None:
    """Pulumi would skip deleting what is `deleted_with` the namespace, and Kubernetes does not delete these with it."""
    for item in recording:
        if "rbac" in item.type and "topology" in item.name:
            assert bool(item.deleted_with) is ("Cluster" not in item.type), item.name
            assert ("namespace" in reveal(item.inputs)["metadata"]) is ("Cluster" not in item.type)


def test_the_objects_are_valid_and_known_to_be_in_no_namespace(recording: Recording) -> None:
    found = [manifest for manifest in manifests(recording) if "topology" in manifest.name]
    assert len(found) == 4
    for manifest in found:
        kubernetes_validate.validate(manifest.document, KUBERNETES, strict=True)
        assert manifest.cluster_scoped is manifest.kind.startswith("Cluster")


def test_scaling_a_cluster_with_a_tree_changes_one_property() -> None:
    before = with_tree(stacks.existing())
    assert Diff(before, with_change(before, "worker_nodes.cpu.size", 400)).changed == {
        "slurm-pool-cpu-pods": ["spec.replicas"]
    }
