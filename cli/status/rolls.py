"""Pools whose pods are replaced as their nodes fall idle: how far that is, and what holds it up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.kubectl.pods import LEAVING, pod_of
from slurm.names import POOL_LABEL, node_name

_REVISION = "controller-revision-hash"


@dataclass(frozen=True, kw_only=True)
class Roll:
    """Of one pool of a fixed size."""

    pool: str
    old: int
    """Nodes that have no new pod yet."""
    size: int
    failing: tuple[str, ...] = ()
    """New pods that are not ready. They count as nodes that are away (`rolling.max_unavailable`)."""


def rolls_in(items: Sequence[Mapping[str, Any]]) -> tuple[Roll, ...]:
    """Of these StatefulSets and pods. Not of pools whose template is the one that all their pods have."""
    pods = {item["metadata"]["name"]: item for item in items if item["kind"] == "Pod"}
    return tuple(_rolls(pods, (item for item in items if item["kind"] == "StatefulSet")))


def _rolls(pods: Mapping[str, Mapping[str, Any]], sets: Iterator[Mapping[str, Any]]) -> Iterator[Roll]:
    for item in sets:
        revision = (item.get("status") or {}).get("updateRevision")
        if revision is None or POOL_LABEL not in (item["metadata"].get("labels") or {}):
            continue
        pool, size = item["metadata"]["name"], int(item["spec"].get("replicas", 1))
        there = [pods[name] for number in range(size) if (name := node_name(pool, number)) in pods]
        old = [pod for pod in there if pod["metadata"].get("labels", {}).get(_REVISION) != revision]
        if old:
            new = [pod_of(pod) for pod in there if pod not in old]
            failing = tuple(pod.name for pod in new if not pod.ready and pod.phase != LEAVING)
            yield Roll(pool=pool, old=len(old), size=size, failing=failing)
