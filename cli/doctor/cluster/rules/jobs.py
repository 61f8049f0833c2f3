"""Jobs: those that never start as they are, those that are requeued again and again, and one that is asked about."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from shlex import quote

from cli.doctor.cluster.facts import Facts, SlurmNode
from cli.doctor.cluster.findings import Finding, Severity
from cli.doctor.cluster.reasons import Meaning, meaning
from cli.text import plain
from images.common.slurm_jobs import Job
from images.common.slurm_records import number_of, states_of, text_of

LOOP = 3
"""Restarts of one job that are no accident."""

ENDING = 180
"""Seconds after its end that a job may still be completing: epilogs and a stopped process take less."""

_SLURM = re.compile(r"(?:^|(?<=: )|(?<=; ))(?=(?:scontrol|squeue|scancel|sacctmgr|sprio) )")
_LISTED = 8


def find(facts: Facts) -> Iterator[Finding]:
    """What is wrong with jobs as a whole. Those that wait for their turn or for limits are as they should be."""
    groups: dict[tuple[str, str], list[tuple[Job, Meaning]]] = defaultdict(list)
    meanings: dict[tuple[object, ...], Meaning] = {}
    looping: dict[str, list[Job]] = defaultdict(list)
    for job in facts.jobs:
        if job.restarts >= LOOP:
            looping[job.user].append(job)
        if job.waits:
            alike = _asked(job)
            said = meanings[alike] = meanings.get(alike) or _meaning(facts, job)  # thousands may wait
            if said.kind == "never" or (said.kind == "held" and job.reason != "JobHeldUser"):
                groups[said.kind, job.reason].append((job, said))
    for jobs in looping.values():
        yield _looping(facts, jobs[0], len(jobs) - 1, max(job.restarts for job in jobs))
    for (kind, reason), found in groups.items():
        first, said = found[0]
        number = f"{len(found)} jobs" if len(found) > 1 else f"job {first.id} of {first.user}"
        fate = "held" if kind == "held" else "never start as they are" if len(found) > 1 else "never starts as it is"
        # Each may ask for something else that is not there.
        differ = kind == "never" and len({one.words for _, one in found}) > 1
        listed = [f"{job.id} of {job.user}" + (f": {one.words}" if differ else "") for job, one in found[:_LISTED]]
        yield Finding(
            about=f"job {first.id}",
            severity="warning",
            cause=f"{number} {fate}: {meaning('BadConstraints').words if differ else said.words}",
            evidence=(reason, *listed),
            mend=_mend(facts, first, said),
            after=tuple(f"partition {name}" for name in first.partitions if kind == "never"),
            weight=len(found),
        )
    yield from _no_nodes(facts)
    yield from _stuck(facts)


def _asked(job: Job) -> tuple[object, ...]:
    """What `_meaning` looks at: jobs that are alike in it are told the same. One too few, and it is said of others."""
    return (
        *(job.reason, job.detail, job.partitions, job.min_nodes, job.min_cpus, job.min_memory),
        *(job.constraint, _node_gpus(job), job.gpus, job.licenses),
    )


def _stuck(facts: Facts) -> Iterator[Finding]:
    """Jobs that have ended long ago, and whose nodes still wait for processes or an epilog."""
    for job in facts.completing:
        seconds = facts.now - job.end if job.end else 0
        if seconds >= ENDING:
            yield Finding(
                about=f"job {job.id}",
                severity="warning",
                cause=f"job {job.id} of {job.user} has been completing for {seconds // 60:.0f} min: "
                "processes of it do not end, or its epilog does not, or a node does not answer",
                evidence=(f"on {', '.join(job.nodes[:_LISTED])}",),
                mend=f"slurmstack logs --job {job.id}; Slurm drains such a node after UnkillableStepTimeout, "
                "and it is free again once the processes are gone or its pod was deleted",
                after=tuple(f"node {name}" for name in job.nodes),
                weight=len(job.nodes),
            )


def _mend(facts: Facts, job: Job, said: Meaning) -> str:
    """The command with this job's names, where Slurm's commands can be run.

    It is there to be copied into a shell, and users write names: an account may be any text.
    """
    id_ = job.id.partition("_[")[0]  # tasks of an array that wait together go by its number
    names = {"id": id_, "user": job.user, "partition": job.partitions[0]}
    names |= {"account": job.account or "ACCOUNT", "qos": job.qos or "QOS"}
    words = said.mend.format(**{key: quote(plain(name)) for key, name in names.items()})
    return _SLURM.sub(facts.slurm(""), words)


def _meaning(facts: Facts, job: Job) -> Meaning:
    """What keeps a job; what its partitions do not have, with all nodes free, is said even where others come first."""
    said = meaning(job.reason, job.detail)
    why = (_no_licenses(facts, job) or _no_such_nodes(facts, job)) if said.kind == "turn" else ""
    return Meaning(kind="never", words=why, mend=meaning("BadConstraints").mend) if why else said


def _no_licenses(facts: Facts, job: Job) -> str:
    if facts.licenses is None or "|" in job.licenses:
        return ""
    for wanted in filter(None, job.licenses.split(",")):
        name, _, count = wanted.partition(":")
        there = facts.licenses.get(name, 0)
        if int(count if count.isdecimal() else 1) > there:
            are = "is" if there == 1 else "are"
            return f"asks for {count or 1} of license {name}, and there {are} {there or 'none'}"
    return ""


def _no_such_nodes(facts: Facts, job: Job) -> str:
    nodes = _nodes_of(facts, job)
    if not nodes or not facts.knows("nodes", "slurm", "pods") or len(nodes) < _most_nodes(facts, job):
        return ""  # more may come
    if len(nodes) < job.min_nodes:
        return f"asks for {job.min_nodes} nodes, and its partition has {len(nodes)}"
    # Anything else than one feature is Slurm's own language.
    feature = job.constraint if re.fullmatch(r"[\w.-]+", job.constraint) else ""
    fitting = [
        n
        for n in nodes
        if n.cpus >= job.min_cpus
        and n.memory >= job.min_memory
        and n.all_gpus >= _node_gpus(job)
        and (not feature or not n.features or feature in n.features)
    ]
    if len(fitting) < max(1, job.min_nodes):
        have = "has" if len(fitting) < 2 else "have"
        return f"asks for {_each(job)}; {len(fitting) or 'none'} of {len(nodes)} nodes {have} that"
    gpus = sum(node.all_gpus for node in fitting)
    return f"asks for {job.gpus} GPUs, and its nodes have {gpus or 'none'}" if job.gpus > gpus else ""


def _nodes_of(facts: Facts, job: Job) -> list[SlurmNode]:
    """Those of its partitions."""
    return [node for node in facts.nodes if set(node.partitions) & set(job.partitions)]


def _most_nodes(facts: Facts, job: Job) -> int:
    """Nodes that its partitions may have in the end; of a partition that is not in the stack file nobody knows less."""
    pools = {pool for name in job.partitions for pool in facts.partition_pools.get(name, tuple(facts.pools))}
    return sum(pool.size for name, pool in facts.pools.items() if name in pools)


def _each(job: Job) -> str:
    nodes = f"{job.min_nodes} node{'s' if job.min_nodes > 1 else ''}"
    gpus = f", {_node_gpus(job)} GPU{'s' if _node_gpus(job) > 1 else ''}" if _node_gpus(job) else ""
    feature = f", feature {job.constraint}" if job.constraint else ""
    return f"{nodes} with {job.min_cpus} CPUs and {job.min_memory:.0f} MiB each{gpus}{feature}"


def _node_gpus(job: Job) -> int:
    """GPUs that each of its nodes must have at least."""
    return max(job.gpus_per_node, job.gpus_per_task)


def _looping(facts: Facts, job: Job, more: int = 0, most: int = 0) -> Finding:
    """`more`: how many others of its user do the same, `most`: how often; a prolog that fails does it to thousands."""
    id_ = job.id
    others = f" and {more} more of {job.user} were" if more else f" of {job.user} was"
    times = f"up to {most} times: they start and fail" if more else f"{job.restarts} times: it starts and fails"
    return Finding(
        about=f"job {id_}",
        severity="warning",
        cause=f"job {id_}{others} requeued {times} again",
        evidence=(f"now {job.state.lower()}" + (f", {job.detail or job.reason}" if job.waits else ""),),
        mend=f"{facts.slurm(f'sacct -j {id_} --duplicates --format=JobID,State,ExitCode,NodeList')}, then "
        f"{facts.slurm(f'scontrol requeuehold {id_}')}",
        weight=1 + more,
    )


def _no_nodes(facts: Facts) -> Iterator[Finding]:
    """Partitions in which jobs wait, and no node takes one."""
    waiting: dict[str, list[str]] = defaultdict(list)
    for job in facts.jobs:
        if job.waits and meaning(job.reason, job.detail).kind == "turn":
            for name in job.partitions:
                waiting[name].append(job.id)
    for name, ids in waiting.items():
        nodes = [node for node in facts.nodes if name in node.partitions]
        open_ = [node for node in nodes if not node.gets_no_jobs and "NOT_RESPONDING" not in node.states]
        if facts.knows("slurm", "nodes") and not facts.slurmctld and not open_:
            yield Finding(
                about=f"queue {name}",
                severity="error",
                cause=f"{len(ids)} jobs wait in partition {name}, and none of its {len(nodes)} nodes takes jobs",
                evidence=(f"jobs {', '.join(ids[:_LISTED])}",),
                mend=facts.slurm(f"sinfo --partition={name} --list-reasons"),
                after=_closers(nodes),
                weight=len(ids),
            )


def _closers(nodes: Iterable[SlurmNode]) -> tuple[str, ...]:
    """What findings are about that close these nodes: an elastic pool closes all of its own."""
    return tuple(dict.fromkeys(name for n in nodes for name in (f"node {n.name}", f"pool {n.name.rpartition('-')[0]}")))


def explain(facts: Facts, wanted: str) -> Iterator[Finding]:
    """Why the job of this number waits, runs, or has ended. Nothing if nobody knows it."""
    base = re.split(r"[_+]", wanted)[0]
    queued = [job for job in facts.jobs if job.id == wanted]
    queued = queued or [job for job in facts.jobs if re.split(r"[_+]", job.id)[0] == base]
    for job in queued:
        if job.restarts >= LOOP:
            yield _looping(facts, job)
        yield _waiting(facts, job) if job.waits else _running(job)
    if queued:
        return
    if facts.job:
        code = facts.job.get("exit_code")
        number = number_of(code.get("return_code")) if isinstance(code, dict) else None
        seen: tuple[str, ...] = (
            f"exit status {number or 0:.0f}; on {text_of(facts.job.get('nodes')) or 'no node'}",
            text_of(facts.job.get("state_reason")),
        )
        yield _end(facts, wanted, tuple(sorted(states_of(facts.job.get("job_state")))), seen)
    elif facts.past:
        said = ("" if field in {"None", "None assigned", "Unknown"} else field for field in facts.past)
        state, code, nodes, start, end, reason = (*said, *([""] * 6))[:6]
        seen = (f"exit status {code}; on {nodes or 'no node'}", f"from {start or 'no start'} to {end or 'now'}", reason)
        yield _end(facts, wanted, (state,), seen)


def _waiting(facts: Facts, job: Job) -> Finding:
    said = _meaning(facts, job)
    nodes = _nodes_of(facts, job)
    closed = [f"{node.name} {node.state} ({node.reason})" for node in nodes if node.gets_no_jobs]
    limit = f"{job.limit // 60} min" if job.limit else "no time limit"
    lines = [
        f"Slurm says {job.detail or job.reason}",
        f"asks for {_each(job)} in {','.join(job.partitions)}, {limit}",
        f"depends on {job.dependency}" if job.dependency else "",
        f"reservation {job.reservation}" if job.reservation else "",
        f"nodes of its partition that take no jobs: {', '.join(closed[:4])}" if closed else "",
        f"the scheduler expects to start it at {_time(job.start)}" if job.start else "",
    ]
    severities: dict[str, Severity] = {"turn": "note", "limit": "note", "held": "warning", "never": "error"}
    return Finding(
        about=f"job {job.id}",
        severity=severities.get(said.kind, "warning"),
        cause=f"job {job.id} of {job.user} waits: {said.words}",
        evidence=tuple(filter(None, lines)),
        mend=_mend(facts, job, said),
        after=_closers(nodes) if closed and len(closed) == len(nodes) else (),
    )


def _time(seconds: float) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
    except (ValueError, OverflowError):
        return "a time after the year 9999"


def _running(job: Job) -> Finding:
    left = f"{job.left // 60} min are left of its time limit" if job.left is not None else "it has no time limit"
    return Finding(
        about=f"job {job.id}",
        severity="note",
        cause=f"job {job.id} of {job.user} is {job.state.lower()} on {', '.join(job.nodes)}",
        evidence=(left,),
        mend="nothing to mend; `slurmstack doctor node NAME` looks at a node",
    )


_ENDS = {
    "COMPLETED": "ended well",
    "CANCELLED": "was cancelled",
    "FAILED": "failed: its script ended with another exit status than 0",
    "TIMEOUT": "was ended: its time limit was over",
    "OUT_OF_MEMORY": "was ended: it used more memory than it had asked for",
    "NODE_FAIL": "was ended: a node of it failed",
    "PREEMPTED": "was ended for a job that may preempt it",
    "BOOT_FAIL": "could not be started: a node did not come up",
    "DEADLINE": "was ended at its deadline",
    "LAUNCH_FAILED": "could not be started on its nodes",
}
_NOT_ENDED = frozenset({"PENDING", "RUNNING", "SUSPENDED"})
_HELPS = {"TIMEOUT": "sbatch --time=...", "OUT_OF_MEMORY": "sbatch --mem=...", "NODE_FAIL": "slurmstack health"}


def _end(facts: Facts, wanted: str, states: tuple[str, ...], seen: tuple[str, ...]) -> Finding:
    words = next((_ENDS[name] for state in states for name in _ENDS if state.startswith(name)), "")
    if going := _NOT_ENDED & set(states):
        return Finding(
            about=f"job {wanted}",
            severity="note",
            cause=f"job {wanted} is {', '.join(sorted(going)).lower()}",
            evidence=() if facts.knows("jobs") else ("the queue, which says more, could not be read",),
            mend=facts.slurm(f"scontrol show job {wanted}"),
        )
    fine = any(state.startswith("COMPLETED") for state in states)
    mend = next((_HELPS[state] for state in states if state in _HELPS), "")
    return Finding(
        about=f"job {wanted}",
        severity="note" if fine else "warning",
        cause=f"job {wanted} {words or 'is ' + ', '.join(states).lower()}",
        evidence=tuple(filter(None, seen)),
        mend=mend or facts.slurm(f"sacct -j {wanted} --format=JobID,State,ExitCode,NodeList,MaxRSS,Elapsed"),
    )
