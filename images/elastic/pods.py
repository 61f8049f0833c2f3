"""The pods of pools, made and ended through the Kubernetes API."""

from __future__ import annotations

import copy
import http.client
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from images.common.kubernetes import Kube, KubeError
from images.common.slurm_records import compress
from images.elastic.view import TEMPLATE, Pod, Pool

AT_ONCE: Final = 16
"""Requests at a time: a job of a thousand nodes asks for a thousand pods."""

SUBDOMAIN: Final = "nodes"
"""The headless Service that gives each pod a name in DNS (slurm/names.py)."""

Item = TypeVar("Item")


class Pods:
    """Makes and ends pods. What was made already, and what is gone, is no failure."""

    def __init__(self, kube: Kube, log: Callable[[str], None]) -> None:
        self._kube = kube
        self._log = log

    def there(self) -> frozenset[str]:
        """Names of the pods that the API server has now, whatever a watch has told of them. Raises KubeError."""
        return frozenset(item["metadata"]["name"] for item in self._kube.list_workers())

    def start(self, pool: Pool, names: Collection[str]) -> str:
        """Make the pods of these nodes; why Kubernetes refuses one, or empty."""
        self._log(f"{compress(names)}: making the pods")
        return _all(lambda name: self._make(pool, name), names)

    def end(self, pods: Collection[Pod]) -> str:
        """End pods, each after its jobs; those of which nothing runs, at once. Why not, or empty."""
        self._log(f"{compress(pod.name for pod in pods)}: ending the pods")
        return _all(self._delete, pods)

    def _make(self, pool: Pool, name: str) -> str:
        try:
            self._kube.send("POST", self._kube.path("pods"), manifest(pool, name))
        except KubeError as error:
            if error.status != http.client.CONFLICT:  # it is there, or the one before has not gone yet
                return f"cannot make the pod {name}: {error}"
        return ""

    def _delete(self, pod: Pod) -> str:
        options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
        if pod.has_ended:
            options["gracePeriodSeconds"] = 0
        try:
            self._kube.send("DELETE", f"{self._kube.path('pods')}/{pod.name}", options)
        except KubeError as error:
            said = f"cannot end the pod {pod.name}: {error}"
            if error.status is None:  # each of a hundred would wait for as long
                return said
            if error.status not in {http.client.NOT_FOUND, http.client.CONFLICT}:
                self._log(said)
        return ""


def _all(do: Callable[[Item], str], items: Collection[Item]) -> str:
    """What went wrong first, after which no more is done: a quota that is used up would refuse each of a thousand."""
    wrong: list[str] = []

    def once(item: Item) -> None:
        if not wrong and (said := do(item)):
            wrong.append(said)

    with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(items))) as workers:
        list(workers.map(once, items))
    return wrong[0] if wrong else ""


def manifest(pool: Pool, name: str) -> Mapping[str, Any]:
    """The pod of one node. It goes with its pool's template, after its jobs."""
    template = copy.deepcopy(dict(pool.template))
    metadata = template.setdefault("metadata", {})
    metadata |= {
        "name": name,
        "labels": {**(metadata.get("labels") or {}), TEMPLATE: pool.digest},
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "PodTemplate", "name": pool.name, "uid": pool.uid, "controller": True}
        ],
    }
    metadata.pop("creationTimestamp", None)
    spec = {**template["spec"], "hostname": name, "subdomain": SUBDOMAIN}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
