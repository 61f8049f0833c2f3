"""What a switch tree adds to the graph, and that nothing is there without one."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from tests import stacks
from tests.graph.diff import Diff
from tests.graph.objects import changed, inputs, recorded


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


def test_the_controller_s_own_account_may_only_read_nodes_and_pods(tree: Recording) -> None:
    for part, resource in (("role", "pods"), ("cluster-role", "nodes")):
        (rule,) = inputs(tree, f"slurm-topology-{part}")["rules"]
        assert (rule["resources"], rule["verbs"]) == ([resource], ["list", "watch"])
        binding = inputs(tree, f"slurm-topology-{part}-binding")
        (subject,) = binding["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": "controller", "namespace": "slurm"}
        assert binding["roleRef"]["kind"] == {"role": "Role", "cluster-role": "ClusterRole"}[part]
