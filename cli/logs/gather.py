"""Which lines are wanted: of a component, or of a job, with the errors in the logs of its nodes and in its output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cli.errors import USAGE, Failure
from cli.kubectl.client import Kubectl, complaint, in_controller, refuse_no_namespace
from cli.kubectl.pods import in_jail
from cli.logs.lines import LISTED, Container, Found, Line, containers, names_job, read_logs
from cli.status.snapshot import KnownJob, read_job
from cli.text import brief
from images.common.slurm_jobs import RUNNING, Job
from images.common.slurm_records import moment
from images.common.slurm_runs import DELIMITER, sacct
from slurm.names import LOGIN, WORKER

_OF_JOBS = ("slurmctld", "slurmdbd", "health-watch")
"""Containers whose programs speak of jobs, besides slurmd on the job's nodes."""

_PATIENCE = 5
"""Seconds for one question about a job's errors: an answer waits for it."""


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
    Raises Failure where pods or nothing at all could be read, or where nobody knows what was named.
    """
    there = list(containers(kubectl.items("pod", "-n", namespace)))
    if not there:
        refuse_no_namespace(kubectl, namespace)
        raise Failure(f"no pod runs in namespace {namespace}", hint="`slurmstack doctor` says why")
    if job is not None:
        known = read_job(kubectl, namespace, job, accounting=accounting)
        found = _of_job(kubectl, namespace, known, there, now=now, since=since)
    else:
        wanted = [item for item in there if component in {None, item.pod, item.name, item.component, item.pool}]
        if not wanted:
            names = sorted({word for item in there for word in (item.component, item.name, item.pool) if word})
            listed = ", ".join(names[: 3 * LISTED]) + (" ..." if names[3 * LISTED :] else "")
            message = f"there is no component, container, pool or pod {component!r}; there are: {listed}"
            raise Failure(message, code=USAGE)
        found = read_logs(kubectl, namespace, wanted, since=since)
    if not found.read:
        raise Failure("nothing could be read:\n" + "\n".join(f"  {line}" for line in found.missing[:LISTED]))
    return found


def _of_job(
    kubectl: Kubectl, namespace: str, known: KnownJob, there: list[Container], *, now: datetime, since: datetime | None
) -> Found:
    lines = list(_lines_of(known, now, errors_in_output(kubectl, namespace, known)))
    if not lines and not known.missing:
        raise Failure(f"Slurm knows no job {known.id}", hint="`slurmstack login` and `sacct -a` show which there are")
    # Where nobody knows its nodes, all may have had it.
    ran_on = known.nodes if lines else {item.pod for item in there if item.component == WORKER}
    wanted = [item for item in there if item.name in _OF_JOBS or (item.name == "slurmd" and item.pod in ran_on)]
    if since is None and lines:
        since = datetime.fromisoformat(min(line.at for line in lines))
    found = read_logs(kubectl, namespace, wanted, since=since, matches=names_job(known.ids))
    found.lines += lines
    found.read += bool(lines)
    found.missing += [f"{who}: {why}" for who, why in known.missing.items()]
    found.missing += [
        f"{node}: there is no such pod now" for node in sorted(known.nodes - {item.pod for item in there})
    ]
    return found


def _lines_of(known: KnownJob, now: datetime, errors: Iterable[str]) -> Iterator[Line]:
    """What Slurm knows, to the second, and at the job's end what its output says. None of what has no time."""
    events = [("sacct", run["JobID"], one) for run in known.runs for one in _run_events(run)]
    events += [("squeue", job.id, one) for job in known.present for one in _shown(job, now, alone=not known.runs)]
    if known.last is not None:
        events += [("output", known.last["JobID"], (moment(known.last["End"]), text)) for text in errors]
    for component, job, (at, text) in events:
        if at is not None:
            time = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
            yield Line(at=time, component=component, place=f"job/{job}", text=text)


def _run_events(run: Mapping[str, str]) -> Iterator[tuple[float | None, str]]:
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


# ---------------------------------------------------------------- errors of a job

_BEFORE = timedelta(minutes=1)
"""So long before a job began slurmd's word about it may be: clocks of machines differ."""

_LAUNCHED = re.compile(r"(?:Launching batch .* for|launch task .* request from) UID[ :](\d+)")
_NAMELESS = re.compile(r"error: (?:(?:.*\buid=|Invalid job cred.* from )(\d+)|Munge decode|.*_LAUNCH.* auth\w+ error)")
"""slurmd names a job with its user; the user alone where the node does not know him, or gets the job too late; nobody
where it cannot read what it gets, as where clocks are minutes apart."""


def errors_on_nodes(
    kubectl: Kubectl, namespace: str, pods: Iterable[Mapping[str, Any]], known: KnownJob
) -> tuple[str, ...]:
    """What slurmd and slurmstepd say went wrong with a job, on its first nodes; and whose log could not be read.

    Nothing of one that runs. A lost node, for which many a job is asked about, has a log that nobody can read.
    """
    if any(job.base_state == RUNNING for job in known.present):
        return ()
    names = names_job(known.ids)
    wanted = [item for item in containers(pods) if item.name == "slurmd" and item.pod in known.nodes][:LISTED]
    began = min((at for run in known.runs if (at := moment(run["Start"])) is not None), default=None)
    found = read_logs(
        kubectl, namespace, wanted,
        since=None if began is None else datetime.fromtimestamp(began, UTC) - _BEFORE,
        matches=lambda text: names(text) or _NAMELESS.search(text) is not None,
        seconds=_PATIENCE,
    )  # fmt: skip
    heard = [line for line in found.lines if names(line.text)]
    users = {match[1] for line in heard if (match := _LAUNCHED.search(line.text))}
    places = {line.place for line in heard}

    def is_about(line: Line) -> bool:
        user = other[1] if (other := _NAMELESS.search(line.text)) else ""
        return names(line.text) or (user in users if user else user is None and line.place not in places)

    lines = [line for line in found.lines if "error: " in line.text and is_about(line)]
    errors = (f"{line.place.partition('/')[0]}: {line.text.partition('error: ')[2]}" for line in lines)
    return (*dict.fromkeys(errors), *(f"the log of {item}" for item in found.missing))


_FIELDS = ("UID", "GID", "StdErr", "StdOut")
_ERROR = re.compile(
    r"(?m)^(?:(?:(?:srun|sbatch|salloc|slurmstepd\S*):|\[[\d:.T-]+\]) (?:error:|.*option)|(?:env|\S+/slurm_script):) .+"
)
"""slurmstepd of 26.05 writes the time in place of its name."""
_TAIL = ("/usr/bin/env", "-i", "/usr/bin/timeout", "3", "/usr/bin/tail", "-c", "100000", "--")
_LISTED = 6


def errors_in_output(kubectl: Kubectl, namespace: str, known: KnownJob) -> tuple[str, ...]:
    """What Slurm's commands, slurmstepd and the script's shell wrote, and no daemon knows; or where its output is.

    So it is with a program that is not there, and a step for which the job has no room. Nothing of a job that ended
    well. The file is read as the user, as its name may be that of a link to anything; so not at all of a job of root.
    """
    run = known.last
    if run is None or run["ExitCode"].startswith("0:"):
        return ()
    batch = f"{run['JobIDRaw']}.batch"
    node = next((step["NodeList"] for step in reversed(known.runs) if step["JobIDRaw"] == batch), "")
    asked = [*sacct(_FIELDS), "--allocations", "--expand-patterns", f"--jobs={run['JobID']}"]
    answer = in_controller(kubectl, namespace, *asked, seconds=_PATIENCE).stdout.partition("\n")[0].split(DELIMITER)
    path = (answer[2] or answer[3]) if len(answer) == len(_FIELDS) else ""  # a part of it, if it has line breaks
    if not node or not path or int(answer[0]) == 0:
        return ()
    # Nodes of elastic pools go; where there is a jail, login nodes have the same files.
    for pod, container in ((node, "slurmd"), (f"service/{LOGIN}", "sshd")):
        command = in_jail(int(answer[0]), int(answer[1]), *_TAIL, path, root="")
        where = ("exec", "-n", namespace, pod, "-c", container, "--")
        done = kubectl.run(*where, *command, check=False, seconds=_PATIENCE)
        if done.returncode == 0:
            errors = tuple(dict.fromkeys(f"{path}: {text}" for text in reversed(_ERROR.findall(done.stdout))))
            return errors[:_LISTED][::-1] or (f"its output is in {path}",)
    return (f"its output could not be read: {brief(complaint(done))}",)
