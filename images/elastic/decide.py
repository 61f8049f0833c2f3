"""What is to be done about elastic pools. Nothing here asks or changes anything.

Each look sees all nodes and pods anew, and decides by what it sees: a restart of this program or of slurmctld, or a
call of ResumeProgram that came twice or never, changes nothing. What a node is to Slurm and what its pod is can differ
in these ways:

missing     the stack has a node that Slurm has no record of: one is made, powered down
awaited     a job has a node that Slurm will power up within a second: the pod is made already
bare        a new record, made without features where there is a switch tree: it gets them, drained until it is in it
coming      Slurm waits for a node without a pod: the pod is made
silent      a node is off, and slurmctld thinks that it has not heard from it: it is powered down once more
unbacked    Slurm takes a node for up whose pod is gone: it is set down, which requeues its jobs, then powered down and
            resumed, which makes it idle again; one that somebody has drained stays down
suspended   a node is off, or goes off, and has a pod: the pod is ended
stuck       a node has been off for a while and its pod does not go: it is held back until that has gone
failed      a node was not there in time: see `pauses.py`
orphan      a pod without a record, or of a node that the stack no longer has: it is ended, after its jobs
twice       slurmctld has started a job once more after a hard stop, and keeps the node for an administrator: it is made
            anew when no job is on it
outdated    a pod of an older template, or a record of an older configuration: made anew when no job is on it
leaving     a record that the stack no longer has, or that `max` has no room for: powered down after its jobs, then
            deleted
few         less than `min` nodes are up: more are powered up
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from images.common.elastic.view import SLURM, Node, Pod, Pool, members
from images.common.slurm_node import ELASTIC, STAYS_LEAVING, TOPOLOGY_REASON

TOO_LATE: Final = "ResumeTimeout reached"
"""Slurm's reason for a node that was not there in time (24.11 and 26.05, power_save.c); behind ` : ` where the node has
a reason from before."""

TWICE: Final = "Duplicate jobid"
"""slurmctld's reason where a node has the job already that it was to start (24.11 and 26.05, agent.c)."""

GONE: Final = f"{ELASTIC} its pod is gone"
LEAVES: Final = f"{ELASTIC} leaves the pool"
OUTDATED: Final = f"{ELASTIC} gets a new pod"


@dataclass(frozen=True, kw_only=True)
class View:
    """All that is seen at one time. Pods were read after the nodes: a node that is up had its pod before."""

    pools: Mapping[str, Pool]
    nodes: Mapping[str, Node]
    pods: Mapping[str, Pod]
    ends: Mapping[str, float] = field(default_factory=dict)
    """When a node's jobs end at the latest, in seconds since 1970, where that decides who leaves."""
    stuck: Collection[str] = ()
    """Nodes that are off and whose pods do not go."""

    def members(self, pool: Pool) -> tuple[str, ...]:
        """Names of a pool's nodes."""
        return members(pool, self.nodes, self.ends)


@dataclass(kw_only=True)
class Plan:
    """What is to be done, each by the names of nodes."""

    create: dict[str, list[str]] = field(default_factory=dict)
    """Records to make, by pool."""
    place: dict[str, list[str]] = field(default_factory=dict)
    """New records that partitions may find, by pool."""
    delete: list[str] = field(default_factory=list)
    """Records to delete, unless a pending job asks for them by name."""
    start: dict[str, list[str]] = field(default_factory=dict)
    """Pods to make, by pool."""
    end: dict[str, Pod] = field(default_factory=dict)
    """Pods to end, each after its jobs."""
    update: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """(state, reason) -> nodes whose record is changed."""

    def change(self, node: str, state: str, reason: str = "") -> None:
        """Update a record."""
        names = self.update.setdefault((state, reason), [])
        if node not in names:
            names.append(node)

    def drop(self, state: str, names: Collection[str]) -> None:
        """Take back what was to become of some nodes."""
        for key in [key for key in self.update if key[0] == state]:
            self.update[key] = [name for name in self.update[key] if name not in names]
            if not self.update[key]:
                del self.update[key]

    def is_empty(self) -> bool:
        """Whether all is as it should be."""
        return not (self.create or self.place or self.delete or self.start or self.end or self.update)


def decide(view: View) -> Plan:
    """What is to be done now."""
    plan = Plan()
    for pool in view.pools.values():
        for name in view.members(pool):
            if name in view.stuck and view.nodes[name].is_free:
                plan.change(name, "drain", STAYS_LEAVING)
            else:
                _about(plan, pool, name, view.nodes.get(name), view.pods.get(name))
        _keep_enough(plan, pool, view)
    wanted = {name for pool in view.pools.values() for name in view.members(pool)}
    usual = {name for pool in view.pools.values() for name in pool.nodes()}
    for node in view.nodes.values():
        if node.is_cloud and node.name not in wanted:
            _take_out(plan, node, view.pods.get(node.name), stays=node.is_barred and node.name in usual)
    for pod in _orphans(view, wanted):
        plan.end[pod.name] = pod
    return plan


def _about(plan: Plan, pool: Pool, name: str, node: Node | None, pod: Pod | None) -> None:
    """One node that the stack wants."""
    if pod is not None and not pod.digest:
        return  # of the pool's StatefulSet, from the time before it was elastic: it leaves after its jobs
    if pod is not None and pod.has_ended:
        _end(plan, pod)
    elif node is None and pod is None:
        plan.create.setdefault(pool.name, []).append(name)
    elif node is None or not node.is_cloud:
        # Its record was deleted under it, and slurmd may have made one that Slurm does not start and end.
        _end(plan, pod)
    elif node.is_awaited:
        if pod is None:
            plan.start.setdefault(pool.name, []).append(name)
    elif node.is_off:
        _about_one_that_is_off(plan, pool, node, pod)
    elif pod is None:
        _about_one_without_a_pod(plan, pool, node)
    elif _needs_another_pod(pool, node, pod):
        plan.change(name, "power_down_asap", OUTDATED)


def _needs_another_pod(pool: Pool, node: Node, pod: Pod) -> bool:
    if pod.is_leaving or node.is_coming or node.goes_down:
        return False
    if node.is_others:
        # With older resources than its pod's, Slurm may not take it back (INVALID_REG): only made anew it is of use.
        return node.is_idle and node.reason_by == SLURM and (node.reason == TWICE or node.mark != pool.mark)
    return pod.digest != pool.digest


def _about_one_that_is_off(plan: Plan, pool: Pool, node: Node, pod: Pod | None) -> None:
    _end(plan, pod)
    # Why Slurm, a leaving pod or we gave it up means nothing any more when the node is off. An administrator's does.
    passed = not node.is_set_down and TOO_LATE not in node.reason  # of that one see `pauses.py`
    if node.is_bare and pool.features:
        if not node.is_to_be_off:  # which would lift the drain
            plan.place.setdefault(pool.name, []).append(node.name)
    elif node.is_powered_down and node.is_down and not node.is_drained and passed:
        plan.change(node.name, "resume")
    elif node.is_powered_down and node.is_silent and node.is_free:
        # What is resumed counts as silent until it is heard, and slurmctld's next start would give it no job.
        plan.change(node.name, "power_down")
    elif pod is None and node.is_powered_down and node.mark != pool.mark and _may_go(node):
        plan.delete.append(node.name)  # the next look makes it anew


def _may_go(node: Node) -> bool:
    """Whether nobody but us keeps jobs from this record: the one in its place is held back where it has to be."""
    is_held = node.is_drained and not (node.is_others or node.goes_down or node.reason == TOPOLOGY_REASON)
    return (node.is_free or is_held) and not node.is_reserved


def _about_one_without_a_pod(plan: Plan, pool: Pool, node: Node) -> None:
    if node.is_coming:
        plan.start.setdefault(pool.name, []).append(node.name)
    elif node.is_others:
        # Powered down it would lose its drain (power_save.c): it stays as it is until somebody resumes it.
        if not node.is_down and not node.is_idle:
            plan.change(node.name, "down", node.reason)
    elif not node.is_down:
        plan.change(node.name, "down", GONE)
    elif not node.goes_down:
        plan.change(node.name, "power_down", GONE)


def _end(plan: Plan, pod: Pod | None) -> None:
    if pod is not None and not pod.is_leaving:
        plan.end[pod.name] = pod


def _keep_enough(plan: Plan, pool: Pool, view: View) -> None:
    """Power up nodes until `min` are up or coming."""
    nodes = [view.nodes[name] for name in view.members(pool) if name in view.nodes and view.nodes[name].is_cloud]
    there = sum(not node.is_off and not node.is_down and not node.goes_down for node in nodes)
    free = [node for node in nodes if node.is_powered_down and node.is_free and node.name not in view.stuck]
    fit = [node for node in free if node.name not in plan.delete]
    for node in fit[: max(0, pool.least - there)]:
        if "POWER_UP" not in node.states:
            plan.change(node.name, "power_up")


def _take_out(plan: Plan, node: Node, pod: Pod | None, *, stays: bool) -> None:
    """A record that the stack no longer has. `stays`: it remembers for whom it is barred, and may not be deleted."""
    if node.is_off:
        _end(plan, pod)
        if pod is None and node.is_powered_down and not (stays or node.is_reserved):
            plan.delete.append(node.name)
            if node.is_free:  # a job that asks for it by name may keep its record; `bounds.py` lifts this
                plan.change(node.name, "drain", LEAVES)
    elif pod is None:
        plan.change(node.name, "power_down" if node.is_down or node.is_coming else "down", GONE)
    elif not node.goes_down:
        plan.change(node.name, "power_down_asap", LEAVES)


def _orphans(view: View, wanted: set[str]) -> Iterator[Pod]:
    for pod in view.pods.values():
        if pod.digest and not pod.is_leaving and pod.name not in wanted and pod.name not in view.nodes:
            yield pod
