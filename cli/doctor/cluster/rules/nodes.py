"""slurmctld, the nodes of Slurm as it sees them, and elastic pools whose nodes do not come."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from cli.change.owner import has_put_back, is_stopped, note_of
from cli.doctor.cluster.findings import Finding, Severity
from cli.health.nodes import Found, in_order, node_of
from cli.status.questions import SlurmNode
from cli.status.snapshot import Pod, Snapshot, at, condition, lost_slurmctld
from images.common.health.slurm import Record
from images.common.slurm_node import (
    ELASTIC,
    LATE,
    LEAVING_REASON,
    NO_CAPACITY,
    NO_START,
    ROLLS,
    STAYS_LEAVING,
    TOPOLOGY_REASON,
)
from slurm.names import CONTROLLER, CONTROLLER_HOST, WORKER

_MUNGE = re.compile(r"munge|credential|authentication", re.IGNORECASE)
_CLOCK = re.compile(r"expired|rewound|clock|time", re.IGNORECASE)

_JOINING = 120
"""Seconds that the pod of a node may be ready before Slurm knows the node."""

_TOO_SMALL = re.compile(r"Low (RealMemory|socket|CPUs|TmpDisk|cores)|gres.*count", re.IGNORECASE)
"""Slurm's reasons for a node that has less than it was said to have."""

LEAST_ROOM = 0.01
"""Of the state volume."""

_HANGS = re.compile(r"did not end in|of an earlier run does not end")
"""What a check says that was ended, or is not begun again (images/health/runner.py)."""


def find(cluster: Snapshot) -> Iterator[Finding]:
    """All about slurmctld and its nodes."""
    restore = _restore(cluster)
    if machine := cluster.slurmctld_lost_with:
        cause, mend = lost_slurmctld(machine, "kubectl")
        yield Finding("slurmctld", "error", cause, mend, (cluster.slurmctld or cluster.unread["slurm"],), (), 20)
    elif cluster.slurmctld or restore is not None:  # which leaves no pod that could be asked
        yield _silent(cluster, restore)
    elif "slurm" in cluster.unread and cluster.knows("pods"):
        yield from _not_there(cluster)
    yield from _no_room(cluster)
    for node in sorted(cluster.nodes, key=lambda node: in_order(node.name)):
        yield from _node(cluster, node)
    if not cluster.slurmctld and cluster.knows("slurm", "nodes"):
        yield from _strangers(cluster)
    for name in cluster.config.worker_nodes:
        yield from _elastic(cluster, name)


def _no_room(cluster: Snapshot) -> Iterator[Finding]:
    """With what is left slurmctld would refuse jobs soon, if it does not do so yet."""
    if cluster.room is not None and cluster.room[0] < cluster.room[1] * LEAST_ROOM:
        free, size = (f"{count / 2**20:.0f} MiB" for count in cluster.room)
        cause = f"slurmctld's state volume is full: {free} of {size} are free, and it accepts no job"
        mend = "make it larger: `slurmstack:controller: {storage: ...}`, then `slurmstack up`"
        yield Finding("claim controller-state", "error", cause, mend, weight=10)


def _silent(cluster: Snapshot, restore: tuple[str, str] | None) -> Finding:
    error, logs = cluster.slurmctld, cluster.kubectl(f"logs service/{CONTROLLER_HOST}")
    if restore is not None:
        cause, mend = restore
    elif _MUNGE.search(error):
        late = bool(_CLOCK.search(error))
        cause = "slurmctld refuses everybody: " + ("the clocks of machines differ" if late else "munge does not work")
        mend = f"{logs} -c munged" + ("; set the machines' clocks (NTP)" if late else "")
    else:
        cause, mend = "slurmctld does not answer", f"{logs} -c slurmctld --tail 20"
    seen = (error,) if error else ()
    return Finding("slurmctld", "error", cause, mend, seen, (f"pod {cluster.active_controller}",), 20)


def _not_there(cluster: Snapshot) -> Iterator[Finding]:
    """Where nobody could be asked: whether slurmctld's pod runs. One that runs, and may not be asked, is none."""
    pod = cluster.pod(cluster.active_controller)
    if pod is not None and pod.is_up:
        return
    waits = next((one["name"] for one in pod.containers if not one.get("ready")), "") if pod is not None else ""
    if pod is None:
        state, mend = "is not there", "slurmstack up"
    else:
        state = "is ending" if pod.leaves else f"is starting{waits and f', and its container {waits} is not ready'}"
        mend = f"wait a minute; then {cluster.kubectl(f'describe pod {pod.name}')}, and `slurmstack up`"
    seen = (*(cluster.warned(pod.item)[:1] if pod is not None else ()), cluster.unread["slurm"])
    name = cluster.active_controller
    cause, after = f"slurmctld does not run: its pod {name} {state}", (f"pod {name}",)
    yield Finding("slurmctld", "error", cause, mend, seen, after, 20)


def _restore(cluster: Snapshot) -> tuple[str, str] | None:
    """Why Slurm is stopped, and what starts it, where a restore has stopped it."""
    workloads = cluster.of("StatefulSet", "Deployment")
    stopped = [str(item["metadata"]["name"]) for item in workloads if is_stopped(item)]
    if CONTROLLER not in stopped:
        return None
    if any(map(has_put_back, workloads)):
        return f"a restore has left {', '.join(stopped)} stopped", "slurmstack up"
    note = note_of(workloads)
    cause = f"a restore that has stopped {', '.join(stopped)} runs, or was not finished"
    return cause, note.command if note is not None else "slurmstack restore"


Diagnosis = tuple[Severity, str, str]
"""How bad it is, the cause, and what mends it."""


def _node(cluster: Snapshot, node: SlurmNode) -> Iterator[Finding]:
    pod = cluster.pod(node.name)
    if node.states & {"FUTURE", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}:
        return
    if node.reason.startswith((LEAVING_REASON, TOPOLOGY_REASON)) and pod and pod.leaves:
        return  # rules.pods tells what it waits for
    checked = node_of(Record(**vars(node)), cluster.now)
    failing = [found for found in checked.findings if _fails(found)] if checked.fresh else []
    seen = [f"{node.state}; {node.reason or 'no reason given'}"]
    if node.is_silent or "Not responding" in node.reason:
        diagnosis = _unheard(cluster, node, pod)
    elif node.gets_no_jobs:
        diagnosis = _closed(cluster, node, checked.drained_for)
        who = f" by {node.reason_by}" if node.reason_by else ""
        when = f", {datetime.fromtimestamp(node.reason_at, UTC):%Y-%m-%d %H:%M} UTC" if node.reason_at else ""
        seen = [f"{node.state}; reason: {node.reason or 'none given'}{who}{when}"]
        seen += [found.line for found in failing if checked.drained_for is not None]
    elif failing:  # it is only reported, or the drain waits for the limit
        check, how = failing[0].check, "fails" if failing[0].status == "fail" else "does not end"
        cause = f"node {node.name} takes jobs though its check {check} {how}"
        diagnosis = "warning", cause, f"slurmstack logs {node.name}"
        seen = [found.line for found in failing]
    else:
        return
    after = (f"pod {node.name}", "slurmctld", *([f"machine {pod.node}"] if pod else ()))
    yield Finding(f"node {node.name}", *diagnosis, tuple(seen), after, 1)


def _fails(found: Found) -> bool:
    """Where the jail hangs, its check does not end, which is "not checked": it drains nothing, and jobs hang there."""
    return found.status == "fail" or (found.check == "filesystem" and _HANGS.search(found.message) is not None)


def _unheard(cluster: Snapshot, node: SlurmNode, pod: Pod | None) -> Diagnosis:
    who = f"slurmctld does not hear from node {node.name}"
    if pod is None and cluster.knows("pods"):
        mend = cluster.slurm(f"scontrol delete nodename={node.name}") + " if it shall not come back"
        return "error", f"{who}: it has no pod", mend
    why = ", though its pod is ready: munge, clock or network" if pod is not None and pod.ready else ""
    return "error", who + why, cluster.kubectl(f"logs {node.name} --all-containers --tail 20")


def _closed(cluster: Snapshot, node: SlurmNode, check: str | None) -> Diagnosis:
    """`check`: the one that keeps it drained."""
    who = f"node {node.name}"
    if check is not None:
        mend = f"slurmstack health; the node comes back by itself when {check} is well"
        return "error", f"{who} is drained by its health checks: {check}", mend
    if _TOO_SMALL.search(node.reason):
        mend = f"correct worker_nodes.{node.name.rpartition('-')[0]}.resources, then `slurmstack up`; or its machine"
        return "error", f"{who} has less than its pool promises: {node.reason}", mend
    if node.states & {"INVALID_REG", "INVAL"}:
        return "error", f"{who} is not what Slurm expects", cluster.kubectl(f"logs {node.name} -c slurmd --tail 20")
    if node.reason.startswith((ROLLS, ELASTIC)) and cluster.pod(node.name) is not None:
        rolls = "it gets a new pod when those that it has are done"
        why = rolls if node.reason.startswith(ROLLS) else node.reason.removeprefix(ELASTIC).strip()
        return "note", f"{who} takes no more jobs: {why}", cluster.slurm(f"squeue --nodelist={node.name}")
    if node.reason == TOPOLOGY_REASON:
        mend = cluster.kubectl(f"logs service/{CONTROLLER_HOST} -c config-agent --tail 20")
        return "error", f"{who} waits for its place in the topology", mend
    state, why = "down" if node.is_down else "drained", f": {node.reason}" if node.reason else ""
    by = f" by {node.reason_by}" if node.reason_by else ""
    resume = cluster.slurm(f"scontrol update nodename={node.name} state=resume")
    return "warning", f"{who} is {state}{by}{why}", resume


def _strangers(cluster: Snapshot) -> Iterator[Finding]:
    """Workers that run, and that Slurm does not know."""
    known = {node.name for node in cluster.nodes}
    for pod in cluster.pods:
        ready = condition(pod.item, "Ready").get("lastTransitionTime")  # its machine and image may have taken long
        late = cluster.now - at(ready or pod.item["metadata"].get("creationTimestamp")) > _JOINING
        if pod.component == WORKER and pod.is_up and late and pod.name not in known:
            cause, after = f"pod {pod.name} runs, and Slurm has no such node", (f"pod {pod.name}", "configuration")
            mend = cluster.kubectl(f"logs {pod.name} -c slurmd --tail 20")
            yield Finding(f"node {pod.name}", "error", cause, mend, after=after, weight=1)


_BETTER = {
    "exceeded quota": "raise the quota: ",
    "ValidatingAdmissionPolicy": "`slurmstack up` writes the policy and the pool's template anew; ",
    "ImagePull": "correct the image, or its pull secret, then `slurmstack up`; ",
    "InvalidImageName": "correct the image, then `slurmstack up`; ",
}
"""Signs in why no node of an elastic pool came -> what to do about it, where that needs no further look."""


def _coming(cluster: Snapshot, pool: str, names: Sequence[str]) -> Iterator[Finding]:
    """Nodes that slurmctld has started: until it gives them up, nothing is drained for them."""
    about, pods = f"pool {pool}", {name: cluster.pod(name) for name in names}
    if missing := [name for name, pod in pods.items() if pod is None and cluster.knows("pods")]:
        cause = f"{about}: {', '.join(missing)} shall come, and has no pod: does Kubernetes refuse it, as for a quota?"
        mend = cluster.kubectl("logs deployment/elastic -c elastic --tail 5")
        yield Finding(about, "warning", cause, mend, weight=len(missing))
    for pod in filter(None, pods.values()):
        if pod.ready and cluster.now - at(condition(pod.item, "Ready").get("lastTransitionTime")) > _JOINING:
            cause = (
                f"{about}: {pod.name} runs, and slurmctld still waits for it: it was powered up once more meanwhile?"
            )
            yield Finding(about, "warning", cause, cluster.kubectl(f"delete pod {pod.name}") + " makes it anew")


def _elastic(cluster: Snapshot, name: str) -> Iterator[Finding]:
    """A pool whose nodes do not come."""
    of_pool = [node for node in cluster.nodes if node.name.rpartition("-")[0] == name]
    nodes = [node for node in of_pool if "DRAIN" in node.states]
    yield from _coming(cluster, name, [node.name for node in of_pool if node.is_coming])
    pods = cluster.kubectl(f"get pods -l slurmstack/pool={name}")
    events = cluster.kubectl("get events --field-selector=reason=FailedScheduling")
    look = f"see why no node came: {pods}, {events}, and the log of what adds machines (the cloud's autoscaler)"
    again = f"it tries again by itself, or at once: {cluster.slurm('scontrol update nodename={nodes} state=resume')}"
    kinds: dict[str, tuple[Severity, str]] = {
        NO_CAPACITY: ("warning", f"{look}; {again}"),
        NO_START: ("warning", f"{pods}; {again}"),
        STAYS_LEAVING: ("warning", f"{cluster.kubectl('get nodes')}; delete the Node of a machine that is dead"),
        LATE: ("warning", f"{look}; {again}"),
    }
    for reason, (severity, mend) in kinds.items():
        if found := [node for node in nodes if node.reason.startswith(reason)]:
            why = max(node.reason for node in found).removeprefix(ELASTIC).strip()
            better = next((mend for sign, mend in _BETTER.items() if sign in why), "")
            quota = f"{cluster.kubectl('get resourcequota')}; " if "exceeded quota" in why else ""
            command = (f"{better}{quota}{again}" if better else mend).format(
                nodes=",".join(node.name for node in found)
            )
            cause, seen = f"pool {name} lacks nodes: {why}", (f"{len(found)} nodes",)
            yield Finding(f"pool {name}", severity, cause, command, seen, weight=len(found))
            return
