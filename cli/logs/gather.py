"""Which lines are about a component or a job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from cli.errors import USAGE, Failure
from cli.health.query import refuse_no_namespace
from cli.kubectl.client import Kubectl
from cli.logs.lines import (
    Container,
    Found,
    Line,
    Source,
    containers,
    events,
    log_sources,
    names_job,
    read_all,
    to_the_second,
)
from cli.status.job import KnownJob, read_job
from cli.text import YEAR_10000
from images.common.slurm_jobs import Job
from images.common.slurm_records import moment
from slurm.names import WORKER

_OF_JOBS = ("slurmctld", "slurmdbd", "health-watch")
"""Containers whose programs speak of jobs, besides slurmd on the job's nodes."""

LISTED = 12
"""Of what could not be read, and of names: there may be a thousand workers."""


def gather(
    kubectl: Kubectl,
    namespace: str,
    now: datetime,
    *,
    component: str | None = None,
    job: str | None = None,
    since: datetime | None = None,
    accounting: bool = True,
) -> Found:
    """Read all that is about one of them, or everything. What cannot be read is noted.

    `since`: None for all, and of a job for its life. `accounting`: whether jobs are recorded.
    Raises Failure where nothing could be read, or where nobody knows what was named.
    """
    pods, missing = [], []
    try:
        pods = kubectl.items("pod", "-n", namespace)
    except Failure as failure:
        missing.append(f"pods: {failure}")
    there = list(containers(pods))
    if not there:
        refuse_no_namespace(kubectl, namespace)
    if job is not None:
        known = read_job(kubectl, namespace, job, accounting=accounting)
        found = _of_job(kubectl, namespace, known, there, now=now, since=since)
    else:
        found = read_all(_of_component(kubectl, namespace, component, there, since))
        if there and component is not None and not any(map(_is_called(component), there)):
            if not found.lines:
                words = sorted({word for item in there for word in (item.component, item.name, item.pool) if word})
                names = ", ".join(words[: 3 * LISTED]) + (" ..." if words[3 * LISTED :] else "")
                message = f"there is no component, container, pool or pod {component!r}; there are: {names}"
                raise Failure(message, code=USAGE)
            missing.append(f"{component}: there is no such pod now")
    found.missing[:0] = missing
    if not found.read:
        raise Failure("nothing could be read:\n" + "\n".join(f"  {line}" for line in found.missing[:LISTED]))
    return found


def _is_called(name: str) -> Callable[[Container], bool]:
    """Whether a container is one of those that a name stands for."""
    return lambda item: name in {item.pod, item.name, item.component, item.pool}


def _of_component(
    kubectl: Kubectl, namespace: str, name: str | None, there: Sequence[Container], since: datetime | None
) -> dict[str, Source]:
    wanted = list(there if name is None else filter(_is_called(name), there))
    objects = {item.pod for item in wanted} | {owner for item in wanted for owner in item.owners} | {name}

    def about(event: dict[str, Any]) -> bool:
        """Of their pods, of what made them, and of pods that they replaced."""
        told = str(event["involvedObject"].get("name", ""))
        return name is None or told in objects or told.startswith(f"{name}-")

    logs = log_sources(kubectl, namespace, wanted, since=since)
    return {**logs, "events": partial(events, kubectl, namespace, wanted=about)}


def _of_job(
    kubectl: Kubectl,
    namespace: str,
    known: KnownJob,
    there: Sequence[Container],
    *,
    now: datetime,
    since: datetime | None,
) -> Found:
    lines = list(_lines_of(known, now))
    if not lines and not known.missing:
        raise Failure(f"Slurm knows no job {known.id}", hint="`slurmstack login` and `sacct -a` show which there are")
    # Where nobody knows its nodes, all may have had it.
    ran_on = known.nodes if lines else {item.pod for item in there if item.component == WORKER}
    wanted = [item for item in there if item.name in _OF_JOBS or (item.name == "slurmd" and item.pod in ran_on)]
    if since is None and lines:
        since = datetime.fromtimestamp(min(line.at for line in lines) // 1_000_000_000, UTC)
    found = read_all(log_sources(kubectl, namespace, wanted, since=since, matches=names_job(known.ids)))
    found.lines += lines
    found.read += bool(lines)
    gone = sorted(known.nodes - {item.pod for item in there}) if there else []
    found.missing += [f"{who}: {why}" for who, why in known.missing.items()]
    found.missing += [f"{node}: there is no such pod now" for node in gone]
    return found


def _lines_of(known: KnownJob, now: datetime) -> Iterator[Line]:
    """What Slurm knows, to the second. None of what has no time, or one that no calendar of Python's has."""
    told = [("sacct", run["JobID"], one) for run in known.runs for one in _told(run)]
    told += [("squeue", job.id, one) for job in known.present for one in _shown(job, now, alone=not known.runs)]
    for component, job, (at, text) in told:
        if at is not None and at < YEAR_10000:
            yield Line(at=to_the_second(at), component=component, place=f"job/{job}", text=text)


def _told(run: Mapping[str, str]) -> Iterator[tuple[float | None, str]]:
    """A run of a job, or a step of it, as sacct has it. A job's name may have lines of its own."""
    submit, eligible, start, end = (moment(run[name]) for name in ("Submit", "Eligible", "Start", "End"))
    step = "." in run["JobID"]
    what = f"{'step' if step else 'job'} {run['JobID']}"
    if not step:
        name = run["JobName"].partition("\n")[0]
        yield submit, f"{what} submitted by {run['User']}: {name} ({run['Partition']})"
        if eligible != submit:
            yield eligible, f"{what} eligible"
    yield start, f"{what} started on {run['NodeList']}"
    yield end, f"{what} ended: {run['State']}, exit code {run['ExitCode']}"


def _shown(job: Job, now: datetime, *, alone: bool) -> Iterator[tuple[float | None, str]]:
    """A job as slurmctld has it now; its times too, where nobody has recorded them."""
    waits = f", reason {job.reason}" if job.reason else ""
    over = job.state not in {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING"}
    if alone:
        yield job.submitted, f"job {job.id} submitted by {job.user} ({','.join(job.partitions)})"
        if job.state != "PENDING":  # a time that is still to come is a guess
            yield job.start, f"job {job.id} started on {job.node_list}"
        if over:
            yield job.end, f"job {job.id} ended: {job.state}{waits}"
    if not over:
        yield now.timestamp(), f"job {job.id} is {job.state}{waits}"
