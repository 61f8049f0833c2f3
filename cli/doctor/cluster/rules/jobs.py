"""Jobs: those that never start as they are, partitions in which no node takes any, and one that is asked about."""

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
from cli.times import YEAR_10000
from images.common.slurm_jobs import Job
from images.common.slurm_records import number_of, states_of, text_of

_SLURM = re.compile(r"(?:^|(?<=: )|(?<=; ))(?=(?:scontrol|squeue|scancel|sacctmgr|sprio) )")
_LISTED = 8


def find(facts: Facts) -> Iterator[Finding]:
    """What is wrong with jobs as a whole. Those that wait for their turn or for limits are as they should be."""
    groups: dict[str, list[Job]] = defaultdict(list)
    for job in facts.jobs:
        if job.waits and job.reason != "JobHeldUser":
            groups[job.reason].append(job)
    for reason, jobs in groups.items():
        first, said = jobs[0], meaning(reason, jobs[0].detail)
        if said.kind not in {"never", "held"}:
            continue
        number = f"{len(jobs)} jobs" if len(jobs) > 1 else f"job {first.id} of {first.user}"
        never = "never start as they are" if len(jobs) > 1 else "never starts as it is"
        yield Finding(
            about=f"job {first.id}",
            severity="warning",
            cause=f"{number} {'held' if said.kind == 'held' else never}: {said.words}",
            evidence=(reason, *(f"{job.id} of {job.user}" for job in jobs[:_LISTED])),
            mend=_mend(facts, first, said),
            after=tuple(f"partition {name}" for name in first.partitions if said.kind == "never"),
            weight=len(jobs),
        )
    yield from _no_nodes(facts)


def _mend(facts: Facts, job: Job, said: Meaning) -> str:
    """The command with this job's names, where Slurm's commands can be run.

    It is there to be copied into a shell, and users write names: an account may be any text.
    """
    id_ = job.id.partition("_[")[0]  # tasks of an array that wait together go by its number
    names = {"id": id_, "user": job.user, "partition": job.partitions[0]}
    names |= {"account": job.account or "ACCOUNT", "qos": job.qos or "QOS"}
    words = said.mend.format(**{key: quote(plain(name)) for key, name in names.items()})
    return _SLURM.sub(facts.slurm(""), words)


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
    said = meaning(job.reason, job.detail)
    nodes = [node for node in facts.nodes if set(node.partitions) & set(job.partitions)]
    closed = [f"{node.name} {node.state} ({node.reason})" for node in nodes if node.gets_no_jobs]
    lines = [
        f"Slurm says {job.detail or job.reason}",
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
    if seconds >= YEAR_10000:
        return "a time after the year 9999"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def _running(job: Job) -> Finding:
    left = f"{job.left // 60} min are left of its time limit" if job.left is not None else "it has no time limit"
    return Finding(
        about=f"job {job.id}",
        severity="note",
        cause=f"job {job.id} of {job.user} is {job.state.lower()} on {', '.join(job.nodes)}",
        evidence=(left,),
        mend="nothing to mend",
    )


_NOT_ENDED = frozenset({"PENDING", "RUNNING", "SUSPENDED"})


def _end(facts: Facts, wanted: str, states: tuple[str, ...], seen: tuple[str, ...]) -> Finding:
    if going := _NOT_ENDED & set(states):
        return Finding(
            about=f"job {wanted}",
            severity="note",
            cause=f"job {wanted} is {', '.join(sorted(going)).lower()}",
            evidence=() if facts.knows("jobs") else ("the queue, which says more, could not be read",),
            mend=facts.slurm(f"scontrol show job {wanted}"),
        )
    return Finding(
        about=f"job {wanted}",
        severity="note" if any(state.startswith("COMPLETED") for state in states) else "warning",
        cause=f"job {wanted} has ended: {', '.join(states)}",
        evidence=tuple(filter(None, seen)),
        mend=f"slurmstack logs --job {wanted}",
    )
