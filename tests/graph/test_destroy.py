"""Everything that has pods is known to `destroy`, which waits until no pod is left."""

from __future__ import annotations

from cli.change.destroy import WORKLOADS
from cli.program.recording import record
from tests import stacks
from tests.stacks import with_change


def test_each_kind_that_has_pods_is_deleted() -> None:
    monitoring = {"install": True, "nodes": True, "kube_state": True, "kube_state_image": "h.example/kube-state:1"}
    sections = with_change(with_change(stacks.existing_full(), "monitoring", monitoring), "rest.enabled", True)
    sections = with_change(sections, "worker_nodes.gpu.size", {"max": 2})
    kinds = {
        item.type.rpartition(":")[2].lower()
        for item in record(sections, stack="prod")
        if "template" in _spec_of(item.inputs)
    }
    assert {"statefulset", "deployment", "daemonset", "job"} <= kinds
    assert kinds <= set(WORKLOADS)


def _spec_of(inputs: dict[str, object]) -> dict[str, object]:
    """Of a PodTemplate the object itself has the template."""
    spec = inputs.get("spec", {})
    return inputs if "template" in inputs else spec if isinstance(spec, dict) else {}


def test_all_that_destroy_deletes_is_found_by_its_labels_and_no_claim_is_among_it() -> None:
    """What had no labels would stay in a namespace that is kept, and be in the way of the next cluster."""
    for stack in (stacks.dev(), stacks.existing_full()):
        resources = record(stack, stack="prod")
        inside = [item for item in resources if (item.inputs.get("metadata") or {}).get("namespace")]
        assert inside
        for item in inside:
            labels = item.inputs["metadata"].get("labels") or {}
            assert labels.get("app.kubernetes.io/part-of") == "slurmstack", item.name
            assert labels.get("app.kubernetes.io/instance") == item.inputs["metadata"]["namespace"], item.name


def test_with_the_engine_claims_go_with_the_namespace_and_static_volumes_keep_their_files() -> None:
    """Why `slurmstack destroy` is refused there without --delete-data: nothing in the graph keeps a claim."""
    for stack in (stacks.dev(), stacks.existing_full()):
        resources = record(stack, stack="prod")
        (namespace,) = [item for item in resources if item.type.endswith(":Namespace")]
        claims = [item for item in resources if item.type.endswith(":PersistentVolumeClaim")]
        assert claims
        assert {(item.deleted_with, item.retained) for item in [*claims]} == {(namespace.urn, False)}
        assert not namespace.retained
        for volume in (item for item in resources if item.type.endswith(":PersistentVolume")):
            assert volume.inputs["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
