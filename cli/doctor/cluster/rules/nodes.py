"""slurmctld, the nodes of Slurm as it sees them, and elastic pools for which no machines came."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from cli.doctor.cluster.facts import Facts, Pod, SlurmNode
from cli.doctor.cluster.findings import Finding, Severity
from cli.health.nodes import Found
from images.common.slurm_node import IN_WINDOW, LEAVING_REASON, NO_CAPACITY, OURS, ROLLS, SET_ASIDE, TOPOLOGY_REASON
from slurm.names import CONTROLLER_HOST, WORKER, node_name

_BUSY_THREADS = 200
"""Of slurmctld's 256: above, commands begin to be refused."""

_MUNGE = re.compile(r"munge|credential|authentication", re.IGNORECASE)
_CLOCK = re.compile(r"expired|rewound|clock|time", re.IGNORECASE)

_PAUSED = re.compile(re.escape(NO_CAPACITY) + r", (?P<tries>\d+) in vain, again at (?P<until>\S+)")

_JOINING = 120
"""Seconds that the pod of a node may be ready before Slurm knows the node."""

_REASONS = (
    (r"Low RealMemory", "has less memory than its pool promises",
        "lower worker_nodes.{pool}.resources.memory in the stack file, then `slurmstack up`; or use larger machines"),
    (r"gres/gpu.*(count|too low|lower)|gres.*count", "has fewer GPUs than its pool promises",
        "slurmstack health run gpu-presence --node {node}; if a GPU is lost, reset or replace the machine"),
    (r"Low (socket|CPUs|TmpDisk|cores)", "is smaller than its pool promises",
        "correct worker_nodes.{pool}.resources in the stack file, then `slurmstack up`"),
    (r"Prolog error|Prolog failed|Epilog error", "is drained: a prolog or epilog of yours failed there",
        "correct the script, then resume it: {resume}"),
    (r"Kill task failed|step not ended|Duplicate jobid|batch job complete f",
        "is drained: processes of a job could not be ended there",
        "slurmstack health run processes --node {node}; when they are gone: {resume}"),
    (r"unexpectedly rebooted", "is down: it restarted while Slurm counted on it", "{resume}"),
)  # fmt: skip
"""Slurm's own reasons, in words."""


def find(facts: Facts) -> Iterator[Finding]:
    """All about slurmctld and its nodes."""
    if facts.slurmctld:
        yield _silent(facts)
    if facts.threads >= _BUSY_THREADS:
        yield Finding(
            about="load",
            severity="warning",
            cause="slurmctld has more questions than it can answer: commands will begin to fail",
            evidence=(f"{facts.threads} of 256 threads are busy",),
            mend=facts.slurm("sdiag") + " shows who asks so much",
        )
    for node in facts.nodes:
        yield from _node(facts, node)
    if not facts.slurmctld and facts.knows("slurm", "nodes"):
        yield from _strangers(facts) if facts.knows("pods") else _missing(facts)
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
    if node.states & {"FUTURE", "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP"}:
        return
    pod, pool = facts.pod(node.name), node.name.rpartition("-")[0]
    after = (f"pod {node.name}", "slurmctld", *([f"machine {pod.machine}"] if pod else ()))
    failing = _failures(node)
    words = {"node": node.name, "pool": pool, "resume": _resume(facts, node)}
    wanted = facts.pools.get(pool)
    told = Finding(about=f"node {node.name}", severity="error", cause="", after=after, weight=1)
    if node.reason.startswith((LEAVING_REASON, TOPOLOGY_REASON)) and pod and pod.leaving:
        return  # rules.pods tells what it waits for
    if "NOT_RESPONDING" in node.states or "Not responding" in node.reason:
        yield _unheard(facts, node, pod, told)
    elif node.gets_no_jobs:
        yield _closed(facts, node, words, told)
    elif failing:
        yield _failing(node, failing, told)
    elif wanted and node.gpus < wanted.gpus:
        cause, mend = _REASONS[1][1:]
        evidence = (f"the stack file wants {wanted.gpus}, Slurm has {node.gpus}",)
        yield _made(told, f"node {node.name} {cause}", evidence, mend.format(**words))


def _made(told: Finding, cause: str, evidence: tuple[str, ...], mend: str, **more: Any) -> Finding:
    return replace(told, cause=cause, evidence=evidence, mend=mend, **more)


def _failures(node: SlurmNode) -> list[Found]:
    """Checks that fail now."""
    checked = node.checked
    return [found for found in checked.findings if found.status == "fail"] if checked.fresh else []


def _resume(facts: Facts, node: SlurmNode) -> str:
    return facts.slurm(f"scontrol update nodename={node.name} state=resume")


def _unheard(facts: Facts, node: SlurmNode, pod: Pod | None, told: Finding) -> Finding:
    who = f"slurmctld does not hear from node {node.name}"
    logs = facts.kubectl(f"logs {node.name}")
    evidence = (f"{node.state}; {node.reason or 'no reason given'}",)
    if pod is None and facts.knows("pods"):
        mend = facts.slurm(f"scontrol delete nodename={node.name}") + " if it shall not come back"
        return _made(told, f"{who}: it has no pod", evidence, mend)
    if pod is not None and pod.ready:
        mend = f"slurmstack health run munge --node {node.name} (then: clock, dns); {logs} -c slurmd --tail 20"
        return _made(told, f"{who}, though its pod is ready: munge, clock or network", evidence, mend)
    return _made(told, who, evidence, f"{logs} --all-containers --tail 20")


def _closed(facts: Facts, node: SlurmNode, words: dict[str, str], told: Finding) -> Finding:
    by = f"set by {node.reason_by}" if node.reason_by else "nobody knows by whom"
    when = f", {datetime.fromtimestamp(node.reason_at, UTC):%Y-%m-%d %H:%M} UTC" if node.reason_at else ""
    evidence: tuple[str, ...] = (f"{node.state}; reason: {node.reason or 'none given'} ({by}{when})",)
    if node.checked.drained_for is not None:
        check = node.checked.drained_for
        shared = (f"jail {check}",) if check == "filesystem" or "/jail" in node.reason else ()
        cause = f"node {node.name} is drained by its health checks: {check}"
        evidence += tuple(found.line for found in _failures(node))
        mend = f"slurmstack health {node.name}; it comes back by itself when {check} is well"
        return _made(told, cause, evidence, mend, after=(*told.after, *shared))
    for pattern, cause, mend in _REASONS:
        if re.search(pattern, node.reason, re.IGNORECASE):
            return _made(told, f"node {node.name} {cause}", evidence, mend.format(**words))
    if node.states & {"INVALID_REG", "INVAL"}:
        mend = facts.kubectl(f"logs {node.name} -c slurmd --tail 20")
        return _made(told, f"node {node.name} is not what Slurm expects", evidence, mend)
    if node.reason.startswith(OURS) and (found := _closed_by_us(facts, node, replace(told, evidence=evidence))):
        return found
    state = "down" if "DOWN" in node.states else "drained"
    who = f" by {node.reason_by}" if node.reason_by else ""
    why = f": {node.reason}" if node.reason else ""
    return _made(told, f"node {node.name} is {state}{who}{why}", evidence, words["resume"], severity="warning")


def _closed_by_us(facts: Facts, node: SlurmNode, told: Finding) -> Finding | None:
    """For a pod that leaves, comes or gets another one in its place."""
    if node.reason.startswith(ROLLS) and facts.pod(node.name) is not None:
        cause = f"node {node.name} takes no more jobs: it gets a new pod when those that it has are done"
        return replace(told, cause=cause, mend=facts.slurm(f"squeue --nodelist={node.name}"), severity="note")
    if node.reason.startswith(LEAVING_REASON):
        cause = f"node {node.name} is still drained for a pod that has left"
        return replace(told, cause=cause, mend=_resume(facts, node))
    if node.reason == TOPOLOGY_REASON:
        mend = facts.kubectl(f"logs service/{CONTROLLER_HOST} -c config-agent --tail 20")
        return replace(told, cause=f"node {node.name} waits for its place in the topology", mend=mend)
    return None


def _failing(node: SlurmNode, failing: list[Found], told: Finding) -> Finding:
    """A node that takes jobs though a check fails: it is only reported, or the drain waits for the limit."""
    check = failing[0].check
    shared = (f"jail {check}",) if check == "filesystem" or "/jail" in failing[0].message else ()
    words = {"dns": "it cannot look up names", "munge": "munge does not work"}
    cause = f"node {node.name} takes jobs though {words.get(check, f'its check {check} fails')}"
    evidence = tuple(found.line for found in failing)
    mend = f"slurmstack health run {check} --node {node.name}"
    return _made(told, cause, evidence, mend, severity="warning", after=(*told.after, *shared))


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


def _missing(facts: Facts) -> Iterator[Finding]:
    """Nodes of the stack file that Slurm does not have, where nobody may look at their pods."""
    known = {node.name for node in facts.nodes}
    told = {owner.name: owner.wanted for owner in facts.owners}  # less where the stack file is not applied yet
    fixed = {name: pool.size for name, pool in facts.pools.items() if not pool.elastic}
    sizes = {name: min(size, told.get(name, size)) for name, size in fixed.items()}
    for name in (node_name(pool, number) for pool, size in sizes.items() for number in range(size)):
        if name not in known:
            yield Finding(
                about=f"node {name}",
                severity="error",
                cause=f"Slurm has no node {name}, which the stack file wants; its pod could not be looked at",
                mend="`slurmstack doctor` with rights to read pods",
                after=("slurmctld", "configuration"),
                weight=1,
            )


def _elastic(facts: Facts, name: str) -> Iterator[Finding]:
    """A pool that pauses, one that is set aside until a person resumes it, or one in a window."""
    nodes = [node for node in facts.nodes if node.name.rpartition("-")[0] == name and "DRAIN" in node.states]
    aside = [node for node in nodes if node.reason.startswith(SET_ASIDE)]
    held = [node for node in nodes if node.reason.startswith(IN_WINDOW)]
    paused = [match for node in nodes if (match := _PAUSED.match(node.reason))]
    events = facts.kubectl("get events --field-selector=reason=FailedScheduling")
    look = f"see why no machine came: {events}, and the log of what adds machines (the cloud's autoscaler)"
    found: tuple[Severity, str, str, int, str]
    if aside:
        resume = facts.slurm(f"scontrol update nodename={','.join(node.name for node in aside)} state=resume")
        cause = "is set aside: ten times in a row no machine came for its nodes"
        found = "error", cause, aside[0].reason, len(aside), f"{look}; then {resume}"
    elif paused:
        last = max(paused, key=lambda match: int(match["tries"]))
        cause = f"pauses: {last['tries']} times in a row no machine came for its nodes in time; it tries again at "
        found = "warning", cause + last["until"], last[0], len(paused), look
    elif held:
        cause = f"may have fewer nodes just now, in its window {held[0].reason.removeprefix(IN_WINDOW).strip()}"
        mend = f"nothing: jobs wait until it ends; or raise its max (worker_nodes.{name}.windows), slurmstack up"
        found = "note", cause, held[0].reason, len(held), mend
    else:
        return
    severity, cause, seen, count, mend = found
    yield Finding(
        about=f"pool {name}",
        severity=severity,
        cause=f"pool {name} {cause}",
        evidence=(f"{count} nodes: {seen}",),
        mend=mend,
        weight=count,
    )
