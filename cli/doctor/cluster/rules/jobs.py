"""Jobs: those that never start as they are, partitions in which no node takes any, and one that is asked about."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from shlex import quote

from cli.doctor.cluster.findings import Finding, Severity
from cli.doctor.cluster.reasons import Meaning, meaning
from cli.status.job import KnownJob
from cli.status.questions import SlurmNode
from cli.status.snapshot import Snapshot
from cli.text import plain
from cli.times import YEAR_10000
from images.common.slurm_jobs import ENDED, Job
from images.common.slurm_records import moment

_SLURM = re.compile(r"(?:^|(?<=: )|(?<=; ))(?=(?:scontrol|squeue|scancel|sacctmgr|sprio) )")
_LISTED = 8
_NOT_ENDED = frozenset({"PENDING", "RUNNING", "SUSPENDED"})


def find(cluster: Snapshot) -> Iterator[Finding]:
    """What is wrong with jobs as a whole. Those that wait for their turn or for limits are as they should be."""
    groups: dict[str, list[Job]] = defaultdict(list)
    for job in cluster.jobs:
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
            mend=_mend(cluster, first, said),
            after=tuple(f"partition {name}" for name in first.partitions if said.kind == "never"),
            weight=len(jobs),
        )
    yield from _no_nodes(cluster)


def _mend(cluster: Snapshot, job: Job, said: Meaning) -> str:
    """The command with this job's names, where Slurm's commands can be run.

    It is there to be copied into a shell, and users write names: an account may be any text.
    """
    id_ = job.id.partition("_[")[0]  # tasks of an array that wait together go by its number
    names = {"id": id_, "user": job.user, "partition": job.partitions[0]}
    names |= {"account": job.account or "ACCOUNT", "qos": job.qos or "QOS"}
    words = said.mend.format(**{key: quote(plain(name)) for key, name in names.items()})
    return _SLURM.sub(cluster.slurm(""), words)


def _no_nodes(cluster: Snapshot) -> Iterator[Finding]:
    """Partitions in which jobs wait, and no node takes one."""
    waiting: dict[str, list[str]] = defaultdict(list)
    for job in cluster.jobs:
        if job.waits and meaning(job.reason, job.detail).kind == "turn":
            for name in job.partitions:
                waiting[name].append(job.id)
    for name, ids in waiting.items():
        nodes = [node for node in cluster.nodes if name in node.partitions]
        open_ = [node for node in nodes if not node.gets_no_jobs and "NOT_RESPONDING" not in node.states]
        if cluster.knows("slurm", "nodes") and not cluster.slurmctld and not open_:
            yield Finding(
                about=f"queue {name}",
                severity="error",
                cause=f"{len(ids)} jobs wait in partition {name}, and none of its {len(nodes)} nodes takes jobs",
                evidence=(f"jobs {', '.join(ids[:_LISTED])}",),
                mend=cluster.slurm(f"sinfo --partition={name} --list-reasons"),
                after=_closers(nodes),
                weight=len(ids),
            )


def _closers(nodes: Iterable[SlurmNode]) -> tuple[str, ...]:
    """What findings are about that close these nodes: an elastic pool closes all of its own."""
    return tuple(dict.fromkeys(name for n in nodes for name in (f"node {n.name}", f"pool {n.name.rpartition('-')[0]}")))


def explain(cluster: Snapshot, known: KnownJob) -> Iterator[Finding]:
    """Why a job waits, runs, or has ended. Nothing if nobody knows it."""
    base = re.split(r"[_+]", known.id)[0]
    there = [job for job in cluster.jobs if job.state != ENDED]
    queued = [job for job in there if job.id == known.id]
    queued = queued or [job for job in there if re.split(r"[_+]", job.id)[0] == base]
    for job in queued:
        yield _waiting(cluster, job) if job.waits else _running(job)
    if not queued:
        yield from _ended(cluster, known)


def _ended(cluster: Snapshot, known: KnownJob) -> Iterator[Finding]:
    """By its record of last, or by what slurmctld still has of it."""
    run = next((run for run in reversed(known.runs) if "." not in run["JobID"]), None)
    job = next((job for job in known.present if job.base_state not in _NOT_ENDED), None)
    if run is None and job is None:
        return
    state, seen = "", []
    if run is not None:
        state, hosts = run["State"], run["NodeList"].replace("None assigned", "")
        start, end = (moment(run[name]) for name in ("Start", "End"))
        seen = [
            f"exit status {run['ExitCode']}; on {hosts or 'no node'}",
            f"from {_time(start) if start else 'no start'} to {_time(end) if end else 'now'}",
            "" if run["Reason"] == "None" else run["Reason"],
        ]
    if job is not None and (run is None or state in _NOT_ENDED):  # slurmdbd has not heard of its end yet
        state, seen = job.state, [f"on {job.node_list or 'no node'}", job.reason]
    if state in _NOT_ENDED:
        yield Finding(
            about=f"job {known.id}",
            severity="note",
            cause=f"job {known.id} is {state.lower()}",
            evidence=() if cluster.knows("jobs") else ("the queue, which says more, could not be read",),
            mend=cluster.slurm(f"scontrol show job {known.id}"),
        )
        return
    yield Finding(
        about=f"job {known.id}",
        severity="note" if state.startswith("COMPLET") else "warning",
        cause=f"job {known.id} has ended: {state}",
        evidence=tuple(filter(None, seen)),
        mend=f"slurmstack logs --job {known.id}",
    )


def _waiting(cluster: Snapshot, job: Job) -> Finding:
    said = meaning(job.reason, job.detail)
    nodes = [node for node in cluster.nodes if set(node.partitions) & set(job.partitions)]
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
        mend=_mend(cluster, job, said),
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
