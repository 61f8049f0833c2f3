"""slurmctld, the nodes of Slurm as it sees them, and elastic pools whose nodes do not come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cli.doctor.cluster.facts import Facts, Pod, SlurmNode
from cli.doctor.cluster.findings import Finding, Severity
from cli.health.nodes import Found
from images.common.slurm_node import (
    ELASTIC,
    LATE,
    LEAVING_REASON,
    NO_CAPACITY,
    NO_START,
    ROLLS,
    SET_ASIDE,
    STAYS_LEAVING,
    TOPOLOGY_REASON,
)
from slurm.names import CONTROLLER_HOST, WORKER

_MUNGE = re.compile(r"munge|credential|authentication", re.IGNORECASE)
_CLOCK = re.compile(r"expired|rewound|clock|time", re.IGNORECASE)

_JOINING = 120
"""Seconds that the pod of a node may be ready before Slurm knows the node."""

_TOO_SMALL = re.compile(r"Low (RealMemory|socket|CPUs|TmpDisk|cores)|gres.*count", re.IGNORECASE)
"""Slurm's reasons for a node that has less than it was said to have."""

_HANGS = re.compile(r"did not end in|of an earlier run does not end")
"""What a check says that was ended, or is not begun again (images/health/runner.py)."""


def find(facts: Facts) -> Iterator[Finding]:
    """All about slurmctld and its nodes."""
    if facts.slurmctld:
        yield _silent(facts)
    for node in facts.nodes:
        yield from _node(facts, node)
    if not facts.slurmctld and facts.knows("slurm", "nodes"):
        yield from _strangers(facts)
    for name in facts.pools:
        yield from _elastic(facts, name)


def _silent(facts: Facts) -> Finding:
    said, logs = facts.slurmctld, facts.kubectl(f"logs service/{CONTROLLER_HOST}")
    if facts.restore is not None:
        cause, mend = facts.restore
    elif _MUNGE.search(said):
        late = bool(_CLOCK.search(said))
        cause = "slurmctld refuses everybody: " + ("the clocks of machines differ" if late else "munge does not work")
        mend = f"{logs} -c munged" + ("; set the machines' clocks (NTP)" if late else "")
    else:
        cause, mend = "slurmctld does not answer", f"{logs} -c slurmctld --tail 20"
    return Finding(
        about="slurmctld",
        severity="error",
        cause=cause,
        evidence=(said,),
        mend=mend,
        after=(f"pod {CONTROLLER_HOST}", "owner controller"),
        weight=20,
    )


def _node(facts: Facts, node: SlurmNode) -> Iterator[Finding]:
    pod = facts.pod(node.name)
    if node.states & {"FUTURE", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}:
        return
    if node.reason.startswith((LEAVING_REASON, TOPOLOGY_REASON)) and pod and pod.leaving:
        return  # rules.pods tells what it waits for
    after = (f"pod {node.name}", "slurmctld", *([f"machine {pod.machine}"] if pod else ()))
    failing = [found for found in node.checked.findings if _fails(found)] if node.checked.fresh else []
    told = Finding(about=f"node {node.name}", severity="error", cause="", after=after, weight=1)
    if "NOT_RESPONDING" in node.states or "Not responding" in node.reason:
        yield _unheard(facts, node, pod, told)
    elif node.gets_no_jobs:
        yield _closed(facts, node, failing, told)
    elif failing:  # it is only reported, or the drain waits for the limit
        how = "fails" if failing[0].status == "fail" else "does not end"
        cause = f"node {node.name} takes jobs though its check {failing[0].check} {how}"
        mend = f"slurmstack logs --node {node.name}"
        yield _made(told, cause, tuple(found.line for found in failing), mend, severity="warning")


def _fails(found: Found) -> bool:
    """Where the jail hangs, its check does not end, which is "not checked": it drains nothing, and jobs hang there."""
    return found.status == "fail" or (found.check == "filesystem" and _HANGS.search(found.message) is not None)


def _made(told: Finding, cause: str, evidence: tuple[str, ...], mend: str, **more: Any) -> Finding:
    return replace(told, cause=cause, evidence=evidence, mend=mend, **more)


def _unheard(facts: Facts, node: SlurmNode, pod: Pod | None, told: Finding) -> Finding:
    who = f"slurmctld does not hear from node {node.name}"
    evidence = (f"{node.state}; {node.reason or 'no reason given'}",)
    if pod is None and facts.knows("pods"):
        mend = facts.slurm(f"scontrol delete nodename={node.name}") + " if it shall not come back"
        return _made(told, f"{who}: it has no pod", evidence, mend)
    said = ", though its pod is ready: munge, clock or network" if pod is not None and pod.ready else ""
    return _made(told, who + said, evidence, facts.kubectl(f"logs {node.name} --all-containers --tail 20"))


def _closed(facts: Facts, node: SlurmNode, failing: list[Found], told: Finding) -> Finding:
    who = f" by {node.reason_by}" if node.reason_by else ""
    when = f", {datetime.fromtimestamp(node.reason_at, UTC):%Y-%m-%d %H:%M} UTC" if node.reason_at else ""
    evidence: tuple[str, ...] = (f"{node.state}; reason: {node.reason or 'none given'}{who}{when}",)
    resume = facts.slurm(f"scontrol update nodename={node.name} state=resume")
    if (check := node.checked.drained_for) is not None:
        cause = f"node {node.name} is drained by its health checks: {check}"
        mend = f"slurmstack health; the node comes back by itself when {check} is well"
        return _made(told, cause, (*evidence, *(found.line for found in failing)), mend)
    if _TOO_SMALL.search(node.reason):
        mend = f"correct worker_nodes.{node.name.rpartition('-')[0]}.resources, then `slurmstack up`; or its machine"
        return _made(told, f"node {node.name} has less than its pool promises: {node.reason}", evidence, mend)
    if node.states & {"INVALID_REG", "INVAL"}:
        mend = facts.kubectl(f"logs {node.name} -c slurmd --tail 20")
        return _made(told, f"node {node.name} is not what Slurm expects", evidence, mend)
    if node.reason.startswith(ROLLS) and facts.pod(node.name) is not None:
        cause = f"node {node.name} takes no more jobs: it gets a new pod when those that it has are done"
        return _made(told, cause, evidence, facts.slurm(f"squeue --nodelist={node.name}"), severity="note")
    if node.reason == TOPOLOGY_REASON:
        mend = facts.kubectl(f"logs service/{CONTROLLER_HOST} -c config-agent --tail 20")
        return _made(told, f"node {node.name} waits for its place in the topology", evidence, mend)
    state, why = "down" if "DOWN" in node.states else "drained", f": {node.reason}" if node.reason else ""
    return _made(told, f"node {node.name} is {state}{who}{why}", evidence, resume, severity="warning")


def _strangers(facts: Facts) -> Iterator[Finding]:
    """Workers that run, and that Slurm does not know."""
    known = {node.name for node in facts.nodes}
    for pod in facts.pods:
        late = facts.now - (pod.ready_at or pod.created_at) > _JOINING  # its machine and image may have taken long
        if pod.component == WORKER and pod.ready and not pod.leaving and late and pod.name not in known:
            yield Finding(
                about=f"node {pod.name}",
                severity="error",
                cause=f"pod {pod.name} runs, and Slurm has no such node",
                mend=facts.kubectl(f"logs {pod.name} -c slurmd --tail 20"),
                after=(f"pod {pod.name}", "slurmctld", "configuration"),
                weight=1,
            )


def _elastic(facts: Facts, name: str) -> Iterator[Finding]:
    """A pool whose nodes do not come, or one that is set aside until a person resumes it."""
    nodes = [node for node in facts.nodes if node.name.rpartition("-")[0] == name and "DRAIN" in node.states]
    events = facts.kubectl("get events --field-selector=reason=FailedScheduling")
    pods = facts.kubectl(f"get pods -l slurmstack/pool={name}")
    look = f"see why no node came: {pods}, {events}, and the log of what adds machines (the cloud's autoscaler)"
    kinds: tuple[tuple[str, Severity, str], ...] = (
        (SET_ASIDE, "error", f"{look}; then {facts.slurm('scontrol update nodename={nodes} state=resume')}"),
        (NO_CAPACITY, "warning", f"{look}; it tries again by itself"),
        (NO_START, "warning", f"{pods}; it tries again by itself"),
        (STAYS_LEAVING, "warning", f"{facts.kubectl('get nodes')}; delete the Node of a machine that is dead"),
        (LATE, "note", "nothing: others came, and it is tried again"),
    )
    for reason, severity, mend in kinds:
        if found := [node for node in nodes if node.reason.startswith(reason)]:
            yield Finding(
                about=f"pool {name}",
                severity=severity,
                cause=f"pool {name} lacks nodes: {max(node.reason for node in found).removeprefix(ELASTIC).strip()}",
                evidence=(f"{len(found)} nodes",),
                mend=mend.format(nodes=",".join(node.name for node in found)),
                weight=len(found),
            )
            return
