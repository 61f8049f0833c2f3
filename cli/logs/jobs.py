"""What Slurm itself knows of a job: when it was in which state, and where."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cli.errors import Failure
from cli.kubectl.client import ANSWER_SECONDS, Kubectl, complaint, if_slurmdbd_answers, in_controller
from cli.logs.lines import Line, nanoseconds
from images.common.slurm_jobs import ENVIRONMENT, JobList
from images.common.slurm_jobs import Job as QueuedJob
from images.common.slurm_records import NotUnderstoodError, expand
from images.common.slurm_runs import DELIMITER

JOB = re.compile(r"\d{1,10}(?:[_+]\d{1,10})?")
"""What `--job` takes: a number, or the task of an array."""

_FIELDS = (
    "JobID", "JobIDRaw", "User", "Partition", "State", "Submit", "Eligible", "Start", "End", "NodeList",
    "ExitCode", "JobName",
)  # fmt: skip
JOBS = JobList("id", "number", "user", "partitions", "state", "reason", "submitted", "start", "end", "node_list")

_HOST = r"[\w.-]+(?:\[\d{1,5}(?:-\d{1,5})?(?:,\d{1,5}(?:-\d{1,5})?)*\])?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*")
_UNKNOWN_JOB = "Invalid job id"


@dataclass(frozen=True, kw_only=True)
class Job:
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


def read_job(kubectl: Kubectl, namespace: str, job: str, now: datetime, *, accounting: bool) -> Job:
    """Ask slurmdbd for what has been and slurmctld for what is. What does not answer is noted."""
    words = ("env", *(f"{name}={value}" for name, value in ENVIRONMENT.items()), *JOBS.command)
    shown = in_controller(kubectl, namespace, *words, "--states=all", f"--jobs={job}", seconds=ANSWER_SECONDS)
    present, missing = [], []
    try:
        present = list(JOBS.read(shown.stdout)) if shown.returncode == 0 else []
    except NotUnderstoodError as error:
        missing.append(f"squeue: {error}")
    if shown.returncode != 0 and _UNKNOWN_JOB not in shown.stderr:
        missing.append(f"squeue: {complaint(shown)}")
    runs: list[dict[str, str]] = []
    if accounting:
        sacct = ["sacct", "--noheader", "--parsable2", f"--delimiter={DELIMITER}", "--duplicates", f"--jobs={job}"]
        asking = if_slurmdbd_answers([*sacct, f"--format={','.join(_FIELDS)}"])
        recorded = in_controller(kubectl, namespace, *asking, seconds=2 * ANSWER_SECONDS)
        missing += [f"sacct: {complaint(recorded)}"] if recorded.returncode != 0 else []
        runs = _table(recorded)
    lines = [line for run in runs for line in _told(run)]
    lines += [line for one in present for line in _shown(one, now, alone=not runs)]
    return Job(
        ids=frozenset({job, *(run["JobIDRaw"].partition(".")[0] for run in runs), *(one.number for one in present)}),
        nodes=frozenset(
            name
            for hosts in (*(run["NodeList"] for run in runs), *(one.node_list for one in present))
            for name in _expanded(hosts)
        ),
        lines=tuple(lines),
        missing=tuple(missing),
    )


def _table(done: subprocess.CompletedProcess[str]) -> list[dict[str, str]]:
    """What sacct has printed; nothing of a command that has failed. A job's name may have anything in it.

    So what divides the fields is known to nobody: a line of a name would be a record of any job.
    """
    lines = done.stdout.splitlines() if done.returncode == 0 else []
    table = [line.split(DELIMITER, len(_FIELDS) - 1) for line in lines]
    return [dict(zip(_FIELDS, row, strict=True)) for row in table if len(row) == len(_FIELDS)]


def _expanded(hosts: str) -> Sequence[str]:
    return expand(hosts) if _HOSTS.fullmatch(hosts) else ()  # not so `None assigned`


def _told(run: dict[str, str]) -> Iterator[Line]:
    """A run of a job, or a step of it, as sacct has it. Slurm has whole seconds."""
    step = "." in run["JobID"]
    what = f"{'step' if step else 'job'} {run['JobID']}"
    if not step:
        name, user, partition = run["JobName"], run["User"], run["Partition"]
        yield from _line(run["Submit"], "sacct", run["JobID"], f"{what} submitted by {user}: {name} ({partition})")
        if run["Eligible"] != run["Submit"]:
            yield from _line(run["Eligible"], "sacct", run["JobID"], f"{what} eligible")
    yield from _line(run["Start"], "sacct", run["JobID"], f"{what} started on {run['NodeList']}")
    end = f"{what} ended: {run['State']}, exit code {run['ExitCode']}"
    yield from _line(run["End"], "sacct", run["JobID"], end)


def _shown(job: QueuedJob, now: datetime, *, alone: bool) -> Iterator[Line]:
    """A job as slurmctld has it now; its times too, where nobody has recorded them."""
    name, state = job.id, job.state
    waits = f", reason {job.reason}" if job.reason else ""
    over = state not in {"PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING"}
    if alone:
        text = f"job {name} submitted by {job.user} ({','.join(job.partitions)})"
        yield from _line(_time(job.submitted), "squeue", name, text)
        if state != "PENDING":  # a time that is still to come is a guess
            yield from _line(_time(job.start), "squeue", name, f"job {name} started on {job.node_list}")
        if over:
            yield from _line(_time(job.end), "squeue", name, f"job {name} ended: {state}{waits}")
    if not over:
        yield from _line(f"{now:%Y-%m-%dT%H:%M:%S}", "squeue", name, f"job {name} is {state}{waits}")


def _time(seconds: float | None) -> str:
    return "" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def _line(time: str, component: str, job: str, text: str) -> Iterator[Line]:
    """None where the time is `Unknown`."""
    at = nanoseconds(time)
    if at is not None:
        yield Line(at=at, component=component, place=f"job/{job}", text=text)


def refuse_no_job(job: str, known: Job) -> None:
    """Raise Failure where Slurm has answered, and knows no such job."""
    if not known.lines and not known.missing:
        raise Failure(f"Slurm knows no job {job}", hint="`slurmstack login` and `sacct -a` show which there are")
