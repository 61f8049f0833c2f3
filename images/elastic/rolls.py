"""New pods for the nodes of fixed pools, as these fall idle. Nothing here asks or changes anything.

Their StatefulSets replace no pod by themselves (`OnDelete`). What has a pod of an older revision gets a new one here:

broken   it is not ready, and Slurm does not have its node: at once, for it is of no use. So a version that does not
         start is left again as soon as another one is applied
idle     drained, so that no job gets it, and then its pod is ended
busy     where no node is idle: drained, those first whose jobs end soonest, and its pod is ended when they have ended.
         However long that takes: no job ends for it

At most `max_unavailable` nodes of a pool at once. All that are away count, for whatever reason, and so do new pods that
do not become ready: a version that does not start takes so many nodes and no more. A node that is no longer wanted for
it, as another one has fallen idle before or the template is the old one again, gives its drain back; a drain of
somebody else stays. The reasons are the memory of it: a restart of this program finds them in Slurm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from images.common.elastic.view import MAX_UNAVAILABLE, Node, Pod, Pool
from images.common.kubernetes import Object
from images.common.slurm_node import ROLLS
from images.elastic.bounds import reason_in_force
from images.elastic.decide import OUTDATED, Plan, View


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


@dataclass(kw_only=True)
class Roll:
    """What is to be done about one pool, and how far it is."""

    drain: list[str] = field(default_factory=list)
    resume: list[str] = field(default_factory=list)
    end: list[Pod] = field(default_factory=list)
    old: int = 0
    """Nodes that do not have their new pods."""
    away: list[str] = field(default_factory=list)
    """Nodes whose pods leave or are missing."""
    failing: list[str] = field(default_factory=list)
    """Nodes with new pods that are not ready, or that Slurm does not hear."""


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


def share(said: str, nodes: int) -> int:
    """How many of so many nodes a number or a percentage means: rounded up, and one at least.

    One as well where somebody has written neither into the annotation by hand.
    """
    number = said.removesuffix("%")
    if not number.isdecimal():
        return 1
    return max(1, math.ceil(nodes * int(number) / 100) if said.endswith("%") else int(number))


def is_outdated(pool: FixedPool, pod: Pod) -> bool:
    """Whether a pod gets another one in its place."""
    return bool(pod.revision) and pod.revision != pool.revision and not pod.is_leaving


def roll(pool: FixedPool, nodes: Mapping[str, Node], pods: Mapping[str, Pod], ends: Mapping[str, float]) -> Roll:
    """What is to be done about a pool now. `ends`: when the jobs of a node end at the latest, where known."""
    plan, old = Roll(), dict[str, Pod]()
    for name in pool.nodes():
        pod = pods.get(name)
        if pod is None or pod.is_leaving:
            plan.away.append(name)
        elif is_outdated(pool, pod):
            old[name] = pod
        elif not _is_well(pod, nodes.get(name)):
            plan.failing.append(name)
    plan.old = len(old) + len(plan.away)
    broken = [name for name, pod in old.items() if not pod.is_ready and _is_gone(nodes.get(name))]
    room = share(pool.max_unavailable, pool.size) - len(plan.away) - len(plan.failing) - len(broken)

    def turn(name: str) -> tuple[bool, bool, bool, float, int]:
        node = nodes.get(name)
        is_busy = not _is_unused(node)
        planned = node is not None and node.is_planned
        end = ends.get(name, math.inf) if is_busy else 0.0
        return is_busy, planned, not drained_for_it(node), end, int(name.rpartition("-")[2])

    chosen = sorted(old.keys() - set(broken), key=turn)[: max(0, room)]
    for name in (*broken, *chosen):
        node = nodes.get(name)
        if node is not None and not (node.is_drained or node.is_down):
            plan.drain.append(name)
        elif _is_unused(node):
            plan.end.append(old[name])
    plan.resume = [name for name in _to_resume(pool, nodes, pods) if name not in {*broken, *chosen}]
    return plan


def _to_resume(pool: FixedPool, nodes: Mapping[str, Node], pods: Mapping[str, Pod]) -> Iterable[str]:
    """Nodes that were drained for it and whose pods stay. A pod that leaves, or comes, lifts the drain itself."""
    for name in pool.nodes():
        node, pod = nodes.get(name), pods.get(name)
        stays = pod is not None and pod.is_ready and not pod.is_leaving
        if stays and node is not None and drained_for_it(node) and not node.is_down:
            yield name


def drained_for_it(node: Node | None) -> bool:
    """Whether a node is drained for its new pod."""
    return node is not None and node.is_drained and node.reason.startswith(ROLLS)


def _is_unused(node: Node | None) -> bool:
    return node is None or node.is_down or node.is_idle


def _is_gone(node: Node | None) -> bool:
    """Whether Slurm has no use of a node. One that it hears is well, whatever kubelets say when their machines hang."""
    return node is None or node.is_down


def _is_well(pod: Pod, node: Node | None) -> bool:
    """Whether a new pod is ready, and Slurm has its node. What an administrator has set down is nobody's fault."""
    if not pod.is_ready or node is None:
        return False
    return node.is_set_down or not (node.is_down or node.is_silent)


def hold_outdated(plan: Plan, view: View, now: float) -> None:
    """Let only some nodes of an elastic pool be powered down at once as their pods are outdated: idle ones first.

    `now`: seconds since 1970.
    """
    told = plan.update.get(("power_down_asap", OUTDATED), [])
    for pool in view.pools.values():
        mine = [name for name in view.members(pool) if name in told and _has_old_template(pool, view, name)]
        nodes = [view.nodes[name] for name in view.members(pool) if name in view.nodes]
        room = 0 if reason_in_force(nodes, now) else _room(pool, view, nodes)
        mine.sort(key=lambda name: (not view.nodes[name].is_idle, view.ends.get(name, math.inf)))
        if held := mine[max(0, room) :]:
            plan.drop("power_down_asap", held)


def _room(pool: Pool, view: View, nodes: Iterable[Node]) -> int:
    """How many more may be powered down. Those that go down for it count, and those that come anew."""
    machines = sum(pod.pool == pool.name and bool(pod.digest) for pod in view.pods.values())
    moving = sum(
        node.is_coming or (node.goes_down and _has_old_template(pool, view, node.name))
        for node in nodes
        if node.name in view.pods
    )
    return share(pool.max_unavailable, machines) - moving


def _has_old_template(pool: Pool, view: View, name: str) -> bool:
    pod = view.pods.get(name)
    return pod is not None and bool(pod.digest) and pod.digest != pool.digest
