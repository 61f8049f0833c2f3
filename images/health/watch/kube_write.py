"""What the watcher writes to the Kubernetes API: events, conditions of a Node, cordons, evictions of worker pods.

Which rights that needs is in `program.py`. No Node is ever deleted, and a pod only through its eviction, which heeds
PodDisruptionBudgets and the pod's own time to end.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from images.controller.kube import REQUEST_TIMEOUT_SECONDS, Kube, KubeError, Object

COMPONENT: Final = "slurmstack-health"
_CREATED: Final = frozenset({http.client.OK, http.client.CREATED})
_MERGE: Final = "application/strategic-merge-patch+json"
"""Merges the list of conditions by their type, so that the others, which kubelet writes, stay."""
_REPLACE: Final = "application/merge-patch+json"
_EVENT_LENGTH: Final = 1000
"""Kubernetes takes 1024 characters."""


def timestamp(seconds: float) -> str:
    """A time as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


@dataclass(frozen=True, kw_only=True)
class WritingKube(Kube):
    """The client, with what is written."""

    @staticmethod
    def of(kube: Kube) -> WritingKube:
        """A client of the same server."""
        return WritingKube(
            host=kube.host,
            port=kube.port,
            namespace=kube.namespace,
            tls=kube.tls,
            service_account=kube.service_account,
        )

    def set_condition(
        self, node: str, *, kind: str, status: str, reason: str, message: str, at: float, turned: bool = True
    ) -> None:
        """Set one condition of a Node. `turned`: the status was another one until now. Raises KubeError."""
        condition = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": timestamp(at),
        }
        if turned:  # controllers go by how long a condition has been true, whatever its message says meanwhile
            condition["lastTransitionTime"] = timestamp(at)
        self._send("PATCH", f"/api/v1/nodes/{quote(node)}/status", {"status": {"conditions": [condition]}}, _MERGE)

    def node(self, name: str) -> Object:
        """A Node as it is now. Raises KubeError."""
        return self._get_json(f"/api/v1/nodes/{quote(name)}")

    def mark_node(
        self, name: str, version: str, *, annotations: Mapping[str, str | None], cordon: bool | None = None
    ) -> None:
        """Cordon or uncordon a Node, or leave that, and set or remove annotations, in one.

        Raises KubeError, with status 409 if the Node is not in this version any more.
        """
        change: dict[str, Any] = {"metadata": {"resourceVersion": version, "annotations": dict(annotations)}}
        if cordon is not None:
            change["spec"] = {"unschedulable": True if cordon else None}
        self._send("PATCH", f"/api/v1/nodes/{quote(name)}", change, _REPLACE)

    def evict(self, pod: str, uid: str) -> None:
        """Have a pod of the namespace leave its machine, if it is still this one. Raises KubeError."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{quote(pod)}/eviction"
        self._send("POST", path, eviction, "application/json")

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
            "firstTimestamp": timestamp(at),
            "lastTimestamp": timestamp(at),
            "count": 1,
        }
        self._send("POST", f"/api/v1/namespaces/{self.namespace}/events", event, "application/json")

    def _send(self, method: str, path: str, body: dict[str, Any], content_type: str) -> None:
        headers = {"Accept": "application/json", "Content-Type": content_type, "User-Agent": COMPONENT}
        token = self.service_account / "token"
        connection = self._connect(REQUEST_TIMEOUT_SECONDS)
        try:
            if token.is_file():
                headers["Authorization"] = f"Bearer {token.read_text(encoding='ascii').strip()}"
            connection.request(method, path, body=json.dumps(body).encode(), headers=headers)
            response = connection.getresponse()
            answer = response.read(2000).decode(errors="replace")
            if response.status not in _CREATED:
                raise KubeError(f"{method} {path}: {response.status} {answer.strip()[:200]}", response.status)
        except (OSError, http.client.HTTPException) as error:
            raise KubeError(f"no answer from the API server: {error}") from error
        finally:
            connection.close()
