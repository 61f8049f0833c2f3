"""What is to be done about elastic pools. Nothing here asks or changes.

Each look decides by what it sees: a restart of this program or of slurmctld, or a call of ResumeProgram that came twice
or never, changes nothing. What a node is to Slurm and what its pod is can differ in these ways:

missing     the stack has a node that Slurm has no record of: one is made, powered down
bare        a new record, made without features where there is a switch tree: it gets them, drained until it is in it
coming      Slurm waits for a node, or will within a second, as a job has it: its pod is made, of the newest template
silent      a node is off, and slurmctld thinks that it has not heard from it: it is powered down once more
unbacked    Slurm takes a node for up whose pod is gone: it is set down, which requeues its jobs, then powered down
suspended   a node is off, or goes off, and has a pod: the pod is ended
orphan      a pod without a record, or of a node that the stack no longer has: it is ended, after its jobs
outdated    a pod of an older template, or a record of an older configuration: made anew when no job is on it
leaving     a record that the stack no longer has: powered down after its jobs, then deleted

Nodes that are off are drained while their last pod does not go, and while their pool waits (`starts.py`): so jobs that
need more nodes wait, and are not refused. No others of our drains stand. Nodes that are up and not to stay are powered
down, each after its jobs; where less than `min` are up, more are powered up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from images.common.slurm_node import ELASTIC, STAYS_LEAVING, waits_for_topology
from images.elastic.nodes import SLURM, Node, Pod, Pool, share
from images.elastic.starts import Closed

GONE: Final = f"{ELASTIC} its pod is gone"
LEAVES: Final = f"{ELASTIC} leaves the pool"
OUTDATED: Final = f"{ELASTIC} gets a new pod"
SURPLUS: Final = f"{ELASTIC} others of its job did not come"
RETRY_SECONDS: Final = 20.0  # from one pod of a node that comes to the next one, where pods fail at once
STUCK_SECONDS: Final = 60.0  # that a pod of a node that is off may take to go: else its machine or kubelet is dead


@dataclass(frozen=True, kw_only=True)
class View:
    """All that is seen at one time. Pods were read after the nodes: a node that is up had its pod before."""

    pools: Mapping[str, Pool]
    nodes: Mapping[str, Node]
    pods: Mapping[str, Pod]
    now: float  # seconds since 1970, as all times here
    closed: Mapping[str, Closed] = field(default_factory=dict)  # what starts in vain mean, by pool
    ends: Mapping[str, float] = field(default_factory=dict)  # of nodes' jobs, where that decides who gets a new pod


@dataclass(kw_only=True)
class Plan:
    """What is to be done, each by the names of nodes."""

    todo: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """(what, of which pool or for which reason) -> nodes. `create`: records; `place`: new ones, for partitions to find;
    `renew`: records, made anew at once; `start`: pods; `delete`: records that no job needs; else a state."""
    end: dict[str, Pod] = field(default_factory=dict)  # pods, each after its jobs

    def add(self, node: str, what: str, of: str = "") -> None:
        """Something for this node, too."""
        self.todo.setdefault((what, of), []).append(node)


def decide(view: View) -> Plan:
    """What is to be done now."""
    plan, wanted = Plan(), set[str]()
    for pool in view.pools.values():
        wanted.update(pool.nodes())
        for name in pool.nodes():
            _about(plan, view, pool, name)
        nodes = pool.of(view.nodes)
        _open_and_close(plan, view, pool, nodes)
        _keep_enough(plan, pool, nodes, _power_down(plan, view, pool, nodes))
    for node in view.nodes.values():
        if node.is_cloud and node.name not in wanted:
            _take_out(plan, view, node)
    for pod in view.pods.values():
        node_of_pod = view.nodes.get(pod.name)
        if pod.digest and pod.name not in wanted and (node_of_pod is None or not node_of_pod.is_cloud):
            _end(plan, pod)  # an orphan
    return plan


def _about(plan: Plan, view: View, pool: Pool, name: str) -> None:
    """One node that the stack wants."""
    node, pod = view.nodes.get(name), view.pods.get(name)
    comes = node is not None and node.comes
    if pod is not None and not pod.digest:
        return  # of the pool's StatefulSet, from the time before it was elastic: it leaves after its jobs
    if pod is not None and (pod.has_ended or (comes and pod.digest != pool.digest and not pod.is_ready)):
        # A new template may mend what one of an older one waits for.
        if not comes or view.now - pod.made_at >= RETRY_SECONDS:
            _end(plan, pod)
    elif node is None and pod is None:
        plan.add(name, "create", pool.name)
    elif node is None or not node.is_cloud:
        # Its record was deleted under it, and slurmd may have made one that Slurm does not start and end.
        _end(plan, pod)
    elif comes:
        if pod is None:
            plan.add(name, "start", pool.name)
    elif node.is_off:
        _about_one_that_is_off(plan, pool, node, pod)
    elif pod is None:
        _about_one_without_a_pod(plan, node)


def _about_one_that_is_off(plan: Plan, pool: Pool, node: Node, pod: Pod | None) -> None:
    _end(plan, pod)
    is_unused = node.is_free or (node.is_drained and _is_ours_to_open(pool, node))
    if pool.features and not node.features:
        if "POWER_DOWN" not in node.states:  # which would lift the drain
            plan.add(node.name, "place", pool.name)
    elif node.is_powered_down and node.is_silent and node.is_free:
        # What is resumed counts as silent until it is heard, and slurmctld's next start would give it no job.
        plan.add(node.name, "power_down")
    elif pod is None and node.is_powered_down and node.mark != pool.mark and is_unused and not node.is_reserved:
        plan.add(node.name, "renew", pool.name)


def _about_one_without_a_pod(plan: Plan, node: Node) -> None:
    if node.is_others and not node.goes_down:
        # Powered down it would lose its drain (power_save.c): it stays as it is until somebody resumes it.
        if node.is_busy and not node.is_down:
            plan.add(node.name, "down", node.reason)
    elif not node.is_down:
        plan.add(node.name, "down", GONE)
    elif not node.goes_down:
        plan.add(node.name, "power_down", GONE)


def _end(plan: Plan, pod: Pod | None) -> None:
    if pod is not None and not pod.is_leaving:
        plan.end[pod.name] = pod


def _is_ours_to_open(pool: Pool, node: Node) -> bool:
    """Whether nobody but us keeps a node that is off from being started; one without features is in no partition."""
    is_others = node.is_others or node.is_set_down or node.goes_down or waits_for_topology(node)
    return not (is_others or (pool.features and not node.features))


def _open_and_close(plan: Plan, view: View, pool: Pool, nodes: Iterable[Node]) -> None:
    """Drain what is not to be started, and free the rest."""
    closed = view.closed[pool.name]
    for node in (node for node in nodes if node.has_nothing and "POWER_UP" not in node.states):
        if node.name not in closed.nodes and not _is_ours_to_open(pool, node):
            continue
        pod = view.pods.get(node.name)
        is_stuck = pod is not None and pod.is_leaving and view.now - pod.left_at >= STUCK_SECONDS
        why = closed.nodes.get(node.name) or (STAYS_LEAVING if is_stuck else closed.pool)
        if why and not (node.is_drained and node.reason == why):
            plan.add(node.name, "drain", why)
        elif not why and (node.is_drained or node.is_down):
            plan.add(node.name, "resume")


def _power_down(plan: Plan, view: View, pool: Pool, nodes: Sequence[Node]) -> int:
    """Power down nodes that are not to stay, each after its jobs; how many of the others can have jobs."""
    there = [n for n in nodes if (n.name in view.pods or n.is_coming) and not (n.is_off or n.is_down or n.goes_down)]
    # What is reserved counts, as it does for Slurm's own SuspendExcNodes: it would end others that were started for it.
    enough = sum(not node.is_others for node in there) - pool.least
    vain = view.closed[pool.name].surplus
    surplus = [node.name for node in there if node.name in vain and node.is_free and not node.is_planned]
    going = dict.fromkeys((node.name for node in _outdated(view, pool, nodes)), OUTDATED)
    going |= dict.fromkeys(surplus[::-1][: max(0, enough)], SURPLUS)
    for name, why in going.items():
        plan.add(name, "power_down_asap", why)
    for node in nodes:  # started by hand, or just before it was held back: it has what was waited for
        is_held = node.is_drained and node.reason.startswith(ELASTIC) and node.name not in going
        if is_held and node.name in view.pods and not (node.is_off or node.is_coming or node.goes_down):
            plan.add(node.name, "resume")
    return sum(not (node.is_others or node.name in going) for node in there)


def _outdated(view: View, pool: Pool, nodes: Iterable[Node]) -> Iterable[Node]:
    """Nodes that are made anew now: some at once, idle ones first, then those whose jobs end soonest."""
    pairs = [(node, view.pods[node.name]) for node in nodes if node.name in view.pods and not node.is_off]
    old = {node.name: node for node, pod in pairs if pod.digest not in {"", pool.digest} and not pod.is_leaving}
    machines = sum(pod.pool == pool.name and bool(pod.digest) for pod in view.pods.values())
    moving = sum(node.is_coming or (node.goes_down and node.name in old) for node, _ in pairs)
    # Where nodes do not come with their new pods, those that there are go on.
    allowed = 0 if view.closed[pool.name].nodes else max(0, share(pool.max_unavailable, machines) - moving)
    ready = [node for node in old.values() if not (node.is_coming or node.is_others or node.goes_down)]
    ready.sort(key=lambda node: (node.is_busy, view.ends.get(node.name, math.inf)))
    yield from ready[:allowed]
    for node, _ in pairs:
        # With older resources than its pod's, Slurm may not take it back (INVALID_REG): only made anew it is of use.
        is_refused = node.is_others and node.reason_by == SLURM and node.mark != pool.mark
        if is_refused and node.is_up and not node.is_busy and not node.goes_down:
            yield node


def _keep_enough(plan: Plan, pool: Pool, nodes: Iterable[Node], there: int) -> None:
    """Power up nodes until `min` are up or coming. What is reserved no ordinary job may use."""
    planned = {name for names in plan.todo.values() for name in names}
    off = [node for node in nodes if node.is_powered_down and node.is_free and not node.is_reserved]
    for node in [node for node in off if node.name not in planned][: max(0, pool.least - there)]:
        if "POWER_UP" not in node.states:
            plan.add(node.name, "power_up")


def _take_out(plan: Plan, view: View, node: Node) -> None:
    """A record that the stack no longer has. One that is off and somebody's remembers for whom, and stays.

    So does one of a smaller pool that is up, as it would lose its drain; and there what a job waits for comes first.
    """
    pod, pool = view.pods.get(node.name), view.pools.get(node.name.rpartition("-")[0])
    if pool is not None and (node.comes or (node.is_others and not node.is_off)):
        _about(plan, view, pool, node.name)
    elif node.is_off:
        _end(plan, pod)
        if pod is None and node.is_powered_down and not (node.is_others or node.is_set_down or node.is_reserved):
            plan.add(node.name, "delete")
            if node.has_nothing and not node.is_drained:  # a job that asks for it by name may keep its record
                plan.add(node.name, "drain", LEAVES)
    elif pod is None:
        plan.add(node.name, "power_down" if node.is_down or (node.is_coming and not node.is_busy) else "down", GONE)
    elif not node.goes_down:
        plan.add(node.name, "power_down_asap", LEAVES)
