"""The pods of elastic pools, made and ended through the Kubernetes API."""

from __future__ import annotations

import copy
import http.client
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from images.common.elastic.view import TEMPLATE, Pod, Pool
from images.common.kubernetes import Kube, KubeError
from images.common.slurm_records import compress

AT_ONCE: Final = 16
"""Requests at a time: a job of a thousand nodes asks for a thousand pods."""

SUBDOMAIN: Final = "nodes"
"""The headless Service that gives each pod a name in DNS (slurm/names.py)."""


class Pods:
    """Makes and ends pods. What was made already, and what is gone, is no failure."""

    def __init__(self, kube: Kube, log: Callable[[str], None]) -> None:
        self._kube = kube
        self._log = log

    def start(self, pool: Pool, names: Iterable[str]) -> str:
        """Make the pods of these nodes; why Kubernetes refuses one, or empty.

        After the first refusal no more are asked for: a quota that is used up would refuse each of a thousand.
        """
        wanted = list(names)
        self._log(f"{compress(wanted)}: making the pods")
        return self._all(lambda name: self._make(pool, name), wanted)

    def end(self, pods: Iterable[Pod]) -> str:
        """End pods, each after its jobs; those of which nothing runs, at once. The silence after which no more were."""
        unwanted = list(pods)
        self._log(f"{compress(pod.name for pod in unwanted)}: ending the pods")
        return self._all(self._delete, unwanted)

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

    def _all(self, do: Callable[[Any], str], items: list[Any]) -> str:
        """What went wrong first, after which no more is done; or empty."""
        wrong: list[str] = []

        def once(item: Any) -> None:
            if not wrong and (said := do(item)):
                wrong.append(said)

        if len(items) == 1:
            once(items[0])
        elif items:
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
