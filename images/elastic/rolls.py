"""What is to be done about fixed pools, whose nodes get new pods as they fall idle. Nothing here asks or changes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from images.common.kubernetes import Object
from images.common.slurm_node import ROLLS
from images.elastic.decide import Plan, View
from images.elastic.nodes import MAX_UNAVAILABLE, Node, Pod, share


@dataclass(frozen=True, kw_only=True)
class FixedPool:
    """A StatefulSet of workers whose pods are replaced here."""

    name: str
    size: int
    revision: str
    """Of its template."""
    max_unavailable: str = "10%"

    def nodes(self) -> tuple[str, ...]:
        """Names of all nodes that it is to have. Those beyond leave after their jobs."""
        return tuple(f"{self.name}-{number}" for number in range(self.size))

    def is_outdated(self, pod: Pod | None) -> bool:
        """Whether a pod gets another one in its place."""
        return pod is not None and pod.revision not in {"", self.revision} and not pod.is_leaving


def fixed_pool_of(item: Object) -> FixedPool | None:
    """A pool of its StatefulSet; None while Kubernetes replaces its pods, or has not seen its template.

    Raises KeyError, TypeError, ValueError.
    """
    metadata, spec, status = item["metadata"], item["spec"], item.get("status") or {}
    if (spec.get("updateStrategy") or {}).get("type") != "OnDelete" or "deletionTimestamp" in metadata:
        return None
    if status.get("observedGeneration") != metadata.get("generation") or not status.get("updateRevision"):
        return None
    annotations = metadata.get("annotations") or {}
    return FixedPool(
        name=metadata["name"],
        size=int(spec.get("replicas", 1)),
        revision=str(status["updateRevision"]),
        max_unavailable=str(annotations.get(MAX_UNAVAILABLE, "10%")),
    )


def roll(plan: Plan, view: View, pool: FixedPool) -> None:
    """Add what is to be done about a fixed pool, whose nodes get new pods as they fall idle.

    Its StatefulSet replaces no pod by itself (`OnDelete`). What has a pod of an older revision gets a new one here:

    broken   it is not ready, and Slurm does not have its node: at once, for it is of no use. So a version that does
             not start is left again as soon as another one is applied
    idle     drained, so that no job gets it, and then its pod is ended
    busy     where no node is idle: drained, those first whose jobs end soonest, and its pod is ended when they have
             ended. However long that takes: no job ends for it

    At most `max_unavailable` nodes of a pool at once. All that are away count, for whatever reason, and so do new pods
    that do not become ready: a version that does not start takes so many nodes and no more. A node that is no longer
    wanted for it, as another one has fallen idle before or the template is the old one again, gives its drain back; a
    drain of somebody else stays. The reasons are the memory of it: a restart of this program finds them in Slurm.
    """
    nodes, pods, ends = view.nodes, view.pods, view.ends
    old = {name: pods[name] for name in pool.nodes() if pool.is_outdated(pods.get(name))}
    away = [name for name in pool.nodes() if name not in pods or pods[name].is_leaving]
    failing = [name for name in pool.nodes() if name not in {*old, *away} and not _is_well(pods[name], nodes.get(name))]
    # One that Slurm hears is well, whatever kubelets say when their machines hang.
    broken = [name for name, pod in old.items() if not pod.is_ready and (name not in nodes or nodes[name].is_down)]
    allowed = share(pool.max_unavailable, pool.size) - len(away) - len(failing) - len(broken)

    def turn(name: str) -> tuple[bool, bool, bool, float, int]:
        node, number = nodes.get(name), int(name.rpartition("-")[2])
        if node is None or node.is_down:
            return False, False, False, 0.0, number
        end = ends.get(name, math.inf) if node.is_busy else 0.0
        return node.is_busy, node.is_planned, not drained_for_it(node), end, number

    chosen = [*broken, *sorted(old.keys() - set(broken), key=turn)[: max(0, allowed)]]
    for name in chosen:
        node = nodes.get(name)
        if node is not None and not (node.is_drained or node.is_down):
            plan.add(name, "drain", ROLLS)
        elif node is None or node.is_down or not node.is_busy:
            plan.end[name] = old[name]
    for name in pool.nodes():  # a pod that leaves, or comes, lifts the drain itself
        node, pod = nodes.get(name), pods.get(name)
        stays = pod is not None and pod.is_ready and not pod.is_leaving and name not in chosen
        if stays and node is not None and drained_for_it(node) and not node.is_down:
            plan.add(name, "resume")


def is_needed(sets: Mapping[str, FixedPool | None], pods: Mapping[str, Pod]) -> bool:
    """Whether a node of a fixed pool is to get a new pod."""
    return any(pool.is_outdated(pods.get(name)) for pool in sets.values() if pool for name in pool.nodes())


def drained_for_it(node: Node) -> bool:
    """Whether a node is drained for its new pod."""
    return node.is_drained and node.reason.startswith(ROLLS)


def _is_well(pod: Pod, node: Node | None) -> bool:
    """Whether a new pod is ready, and Slurm has its node. What an administrator has set down is nobody's fault."""
    if not pod.is_ready or node is None:
        return False
    return node.is_set_down or not (node.is_down or node.is_silent)
