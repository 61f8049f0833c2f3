"""Everything that has pods is known to `destroy`, which waits until no pod is left."""

from __future__ import annotations

from cli.kubectl.destroy import WORKLOADS
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
