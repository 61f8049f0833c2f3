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
from tests.graph.objects import KUBERNETES, changed, inputs, objects, recorded


def with_tree(**more: Any) -> dict[str, Any]:
    """A stack on a foreign cluster with a switch tree."""
    return changed(topology__plugin="tree", **more)


@pytest.fixture(scope="module")
def tree() -> Recording:
    return recorded(with_tree())


def test_turning_the_tree_on_adds_rights_changes_slurms_files_and_touches_no_pod() -> None:
    diff = Diff(stacks.existing(), with_tree())
    rights = ("cluster-role", "cluster-role-binding", "role", "role-binding")
    assert diff.added == ["slurm-topology", *(f"slurm-topology-{one}" for one in rights)]
    assert not diff.removed
    assert set(diff.changed) == {"slurm-configuration-files", "slurm-configuration-active"}
    assert Diff(with_tree(), with_tree(worker_nodes__cpu__size=400)).changed == {
        "slurm-pool-cpu-pods": ["spec.replicas"]
    }


@pytest.mark.parametrize("stack", [stacks.dev(), stacks.existing()])
def test_a_stack_without_a_fabric_and_a_watcher_of_machines_has_no_right_outside_its_namespace(stack: Any) -> None:
    assert not objects(recorded(stack, health__machines={"follow": False}), "ClusterRole")


def test_the_controller_s_own_account_may_only_read_nodes_and_pods(tree: Recording) -> None:
    for part, resource in (("role", "pods"), ("cluster-role", "nodes")):
        (rule,) = inputs(tree, f"slurm-topology-{part}")["rules"]
        assert (rule["resources"], rule["verbs"]) == ([resource], ["list", "watch"])
        binding = inputs(tree, f"slurm-topology-{part}-binding")
        (subject,) = binding["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": "controller", "namespace": "slurm"}
        assert binding["roleRef"]["kind"] == {"role": "Role", "cluster-role": "ClusterRole"}[part]


def test_two_clusters_in_one_kubernetes_do_not_share_a_cluster_role() -> None:
    names = [objects(recorded(with_tree(cluster__namespace=one)), "ClusterRole") for one in ("one", "two")]
    assert {*names[0], *names[1]} == {"one-topology", "two-topology", "one-health-watch", "two-health-watch"}


def test_what_is_in_no_namespace_is_not_left_behind_with_it(tree: Recording) -> None:
    """Pulumi would skip deleting what is `deleted_with` the namespace, and Kubernetes does not delete these with it."""
    for item in tree:
        if "rbac" in item.type and "topology" in item.name:
            assert bool(item.deleted_with) is ("Cluster" not in item.type), item.name
            assert ("namespace" in reveal(item.inputs)["metadata"]) is ("Cluster" not in item.type)
    found = [manifest for manifest in manifests(tree) if "topology" in manifest.name]
    assert len(found) == 4
    for manifest in found:
        kubernetes_validate.validate(manifest.document, KUBERNETES, strict=True)
        assert manifest.cluster_scoped is manifest.kind.startswith("Cluster")
