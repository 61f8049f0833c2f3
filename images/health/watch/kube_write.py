"""What the watcher writes to the Kubernetes API: events, conditions of a Node, cordons, evictions of worker pods.

Which rights that needs is in `program.py`. No Node is ever deleted, and a pod only through its eviction, which heeds
PodDisruptionBudgets and the pod's own time to end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from images.common.health.report import stamp
from images.common.kubernetes import Kube, Object
from images.health.watch.machines import Condition

COMPONENT: Final = "slurmstack-health"
_MERGE: Final = "application/strategic-merge-patch+json"
"""Merges the list of conditions by their type, so that the others, which kubelet writes, stay."""
_REPLACE: Final = "application/merge-patch+json"
_EVENT_LENGTH: Final = 1000
"""Kubernetes takes 1024 characters."""


@dataclass(frozen=True, kw_only=True)
class WritingKube(Kube):
    """The client, with what is written."""

    def set_condition(self, node: str, kind: str, wanted: Condition, *, at: float) -> None:
        """Set one condition of a Node, which had another status until now. Raises KubeError."""
        condition = {"type": kind, **vars(wanted), "lastHeartbeatTime": stamp(at), "lastTransitionTime": stamp(at)}
        self.send("PATCH", f"/api/v1/nodes/{quote(node)}/status", {"status": {"conditions": [condition]}}, _MERGE)

    def node(self, name: str) -> Object:
        """A Node as it is now. Raises KubeError."""
        return self.get(f"/api/v1/nodes/{quote(name)}")

    def mark_node(self, name: str, *, annotations: Mapping[str, str | None], cordon: bool = False) -> None:
        """Set annotations of a Node, or remove those that are None; and cordon it, if so asked. Raises KubeError."""
        change: dict[str, Any] = {"metadata": {"annotations": dict(annotations)}}
        if cordon:
            change["spec"] = {"unschedulable": True}
        self.send("PATCH", f"/api/v1/nodes/{quote(name)}", change, _REPLACE)

    def evict(self, pod: str, uid: str) -> None:
        """Have a pod of the namespace leave its machine, if it is still this one. Raises KubeError."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{quote(pod)}/eviction"
        self.send("POST", path, eviction)

    def tell(self, pod: str, uid: str, *, reason: str, message: str, warning: bool, at: float) -> None:
        """Write an event about a pod of the namespace. Raises KubeError."""
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": self.namespace}
        # One round may have two things to tell of a pod, and another event of the same name is refused.
        name = f"{pod}.{int(at * 1e6):x}.{reason.lower()}"
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": self.namespace},
            "involvedObject": {**reference, "uid": uid} if uid else reference,
            "reason": reason,
            "message": message[:_EVENT_LENGTH],
            "type": "Warning" if warning else "Normal",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": COMPONENT,
            "firstTimestamp": stamp(at),
            "lastTimestamp": stamp(at),
            "count": 1,
        }
        self.send("POST", f"/api/v1/namespaces/{self.namespace}/events", event)
