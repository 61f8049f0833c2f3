"""Which lines are about a component, a node or a job, and what Slurm itself knows of a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cli.errors import USAGE, Failure
from cli.kubectl.client import (
    ANSWER_SECONDS,
    Kubectl,
    complaint,
    if_slurmdbd_answers,
    in_controller,
    refuse_no_namespace,
)
from cli.logs.lines import Line, names_job, names_node, to_the_second
from cli.logs.sources import Container, Found, containers, events, log_sources, read_all
from cli.times import YEAR_10000
from images.common.slurm_jobs import ENVIRONMENT, Job, JobList
from images.common.slurm_records import NotUnderstoodError, expand, moment
from images.common.slurm_runs import RecordError, rows, sacct
from slurm.names import WORKER

_WATCHERS = ("slurmctld", "config-agent", "health-watch")
"""Containers whose programs speak of nodes."""

_OF_JOBS = ("slurmctld", "slurmdbd", "health-watch")
"""Containers whose programs speak of jobs, besides slurmd on the job's nodes."""

_MACHINES = "default"
"""Namespace of the events of machines, which are in none."""

JOB = re.compile(r"\d{1,10}(?:[_+]\d{1,10})?")
"""What `--job` takes: a number, or the task of an array."""

_FIELDS = (
    "JobID", "JobIDRaw", "User", "Partition", "State", "Submit", "Eligible", "Start", "End", "NodeList",
    "ExitCode", "JobName",
)  # fmt: skip
JOBS = JobList("id", "number", "user", "partitions", "state", "reason", "submitted", "start", "end", "node_list")

_UNKNOWN_JOB = "Invalid job id"

LISTED = 12
"""Of what could not be read, and of names: there may be a thousand workers."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is looked for, and of which time."""

    component: str | None = None
    node: str | None = None
    job: str | None = None
    since: datetime | None = None
    accounting: bool = True
    """Whether jobs are recorded."""


@dataclass(frozen=True, kw_only=True)
class KnownJob:
    """A job as far as Slurm knows it."""

    ids: frozenset[str]
    """All numbers that stand for it in logs: of a task of an array, its own too."""
    nodes: frozenset[str]
    """Where it ran, also before it was queued again."""
    lines: tuple[Line, ...]
    missing: tuple[str, ...]
    """Who could not be asked, and why."""

    @property
    def begin(self) -> datetime | None:
        """When it was submitted; None if nobody knows."""
        times = [line.at for line in self.lines]
        return datetime.fromtimestamp(min(times) // 1_000_000_000, UTC) if times else None


def gather(kubectl: Kubectl, namespace: str, asked: Asked, now: datetime) -> Found:
    """Read all that is about it. What cannot be read is noted; raises Failure where that is everything."""
    pods, missing = [], []
    try:
        pods = kubectl.items("pod", "-n", namespace)
    except Failure as failure:
        missing.append(f"pods: {failure}")
    there = containers(pods)
    if not there:
        refuse_no_namespace(kubectl, namespace)
    if asked.job is not None:
        found = _of_job(kubectl, namespace, asked, there, now)
    elif asked.node is not None:
        found = _of_node(kubectl, namespace, asked, there)
    else:
        found = _of_component(kubectl, namespace, asked, there)
    found.missing[:0] = missing
    if not found.read:
        raise Failure("nothing could be read:\n" + "\n".join(f"  {line}" for line in found.missing[:LISTED]))
    return found


def _of_component(kubectl: Kubectl, namespace: str, asked: Asked, there: Sequence[Container]) -> Found:
    name = asked.component
    wanted = [item for item in there if name is None or name in {item.pod, item.name, item.component, item.pool}]
    objects = {item.pod for item in wanted} | {owner for item in wanted for owner in item.owners} | {name}

    def about(event: dict[str, Any]) -> bool:
        """Of their pods, of what made them, and of pods that they replaced."""
        told = str(event["involvedObject"].get("name", ""))
        return name is None or told in objects or told.startswith(f"{name}-")

    logs = log_sources(kubectl, namespace, wanted, since=asked.since)
    found = read_all({**logs, "events": lambda: events(kubectl, namespace, wanted=about)})
    if not wanted and name is not None and there:
        if not found.lines:
            names = (word for item in there for word in (item.component, item.name, item.pool) if word)
            raise _unknown("component, container, pool or pod", name, names)
        found.missing.append(f"{name}: there is no such pod now")
    return found


def _of_node(kubectl: Kubectl, namespace: str, asked: Asked, there: Sequence[Container]) -> Found:
    node = str(asked.node)
    own = [item for item in there if item.pod == node]
    others = [item for item in there if item.name in _WATCHERS and item.pod != node]
    sources = log_sources(kubectl, namespace, own, since=asked.since)
    sources["events"] = lambda: events(
        kubectl, namespace, wanted=lambda item: item["involvedObject"].get("name") == node
    )
    if machine := next((item.machine for item in own), ""):
        of_machine = f"--field-selector=involvedObject.kind=Node,involvedObject.name={machine}"
        sources[f"events of machine {machine}"] = lambda: events(kubectl, _MACHINES, of_machine)
    found = read_all(sources | log_sources(kubectl, namespace, others, since=asked.since, matches=names_node(node)))
    if not own and there:
        workers = {item.pod for item in there if item.component == WORKER}
        if not found.lines and workers:
            raise _unknown("node", node, workers)
        found.missing.append(f"{node}: there is no such pod now")
    return found


def _of_job(kubectl: Kubectl, namespace: str, asked: Asked, there: Sequence[Container], now: datetime) -> Found:
    known = _read_job(kubectl, namespace, str(asked.job), now, accounting=asked.accounting)
    pods = {item.pod for item in there}
    # Where nobody knows its nodes, all may have had it.
    ran_on = known.nodes if known.lines else {item.pod for item in there if item.component == WORKER}
    wanted = [item for item in there if item.name in _OF_JOBS or (item.name == "slurmd" and item.pod in ran_on)]
    since = asked.since or known.begin
    found = read_all(log_sources(kubectl, namespace, wanted, since=since, matches=names_job(known.ids)))
    found.lines += known.lines
    found.read += bool(known.lines)
    gone = sorted(known.nodes - pods) if there else []
    found.missing += [*known.missing, *(f"{node}: there is no such pod now" for node in gone)]
    return found


def _read_job(kubectl: Kubectl, namespace: str, job: str, now: datetime, *, accounting: bool) -> KnownJob:
    """Ask slurmdbd for what has been and slurmctld for what is. What does not answer is noted.

    Raises Failure where Slurm has answered, and knows no such job.
    """
    words = ("env", *(f"{name}={value}" for name, value in ENVIRONMENT.items()), *JOBS.command)
    shown = in_controller(kubectl, namespace, *words, "--states=all", f"--jobs={job}", seconds=ANSWER_SECONDS)
    present: list[Job] = []
    runs: list[dict[str, str]] = []
    missing: list[str] = []
    try:
        if shown.returncode == 0:
            present = list(JOBS.read(shown.stdout))
        elif _UNKNOWN_JOB not in shown.stderr:
            missing.append(f"squeue: {complaint(shown)}")
    except NotUnderstoodError as error:
        missing.append(f"squeue: {error}")
    if accounting:
        asking = if_slurmdbd_answers([*sacct(_FIELDS), "--duplicates", f"--jobs={job}"])
        recorded = in_controller(kubectl, namespace, *asking, seconds=2 * ANSWER_SECONDS)
        try:
            if recorded.returncode == 0:
                runs = list(rows(recorded.stdout.splitlines(), _FIELDS))
            else:
                missing.append(f"sacct: {complaint(recorded)}")
        except RecordError as error:
            missing.append(f"sacct: {error}")
    lines = [line for run in runs for line in lines_of("sacct", run["JobID"], _told(run))]
    lines += [line for one in present for line in lines_of("squeue", one.id, _shown(one, now, alone=not runs))]
    if not lines and not missing:
        raise Failure(f"Slurm knows no job {job}", hint="`slurmstack login` and `sacct -a` show which there are")
    hosts = {*(run["NodeList"] for run in runs), *(one.node_list for one in present)} - {"None assigned"}
    return KnownJob(
        ids=frozenset({job, *(run["JobIDRaw"].partition(".")[0] for run in runs), *(one.number for one in present)}),
        nodes=frozenset(name for listed in hosts for name in expand(listed)),
        lines=tuple(lines),
        missing=tuple(missing),
    )


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


def lines_of(component: str, job: str, told: Iterator[tuple[float | None, str]]) -> Iterator[Line]:
    """What is known to the second. None of what has no time, or one that no calendar of Python's has."""
    for at, text in told:
        if at is not None and at < YEAR_10000:
            yield Line(at=to_the_second(at), component=component, place=f"job/{job}", text=text)


def _unknown(what: str, name: str, names: Iterable[str]) -> Failure:
    there = sorted(set(names))
    listed = ", ".join(there[: 3 * LISTED]) + (" ..." if there[3 * LISTED :] else "")
    return Failure(f"there is no {what} {name!r}; there are: {listed}", code=USAGE)
