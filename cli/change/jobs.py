"""Which running and pending jobs a change touches, by the live queue: for `preview`, `up` and `destroy`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.markup import escape

from cli.change.job_effects import (
    FATES,
    REFUSED,
    ClusterChange,
    Document,
    Fate,
    Queue,
    Touched,
    partitions_in,
    pools_of,
    slurm_conf_in,
    span,
    touch,
)
from cli.errors import Failure, Refused
from cli.kubectl.client import Kubectl, complaint, in_controller
from cli.text import plain, say
from images.common.slurm_conf import IN_FORCE
from images.common.slurm_jobs import ENDED, JobList
from images.common.slurm_records import NotUnderstoodError, task_ids
from slurm.names import POOL_LABEL

JOBS = JobList("id", "user", "partitions", "state", "node_list", "left", "limit")
"""What a change may touch of a job."""

_TIMEOUT = 10
"""Seconds that slurmctld may take to answer; squeue alone would try for minutes."""

_END_OF_FILE = "# the queue"


def read_queue(kubectl: Kubectl, namespace: str) -> Queue:
    """Ask slurmctld, in one call. Raises Failure with the reason if it does not answer."""
    script = f"cat {IN_FORCE} && echo '{_END_OF_FILE}' && timeout {_TIMEOUT} env {JOBS.shell}"
    done = in_controller(kubectl, namespace, "sh", "-c", script)
    if done.returncode != 0:
        raise Failure(complaint(done) if done.returncode != 124 else f"no answer within {_TIMEOUT} s")
    slurm_conf, _, jobs = done.stdout.partition(f"{_END_OF_FILE}\n")
    try:
        # One that only cleans up has ended.
        found = tuple(job for job in JOBS.read(jobs) if job.state != ENDED)
    except NotUnderstoodError as error:
        raise Failure(f"squeue: {error}") from error
    return Queue(jobs=found, slurm_conf=slurm_conf)


LINES = 20
"""Jobs that are named at most."""


@dataclass(frozen=True, kw_only=True)
class JobsTouched:
    """What a change does to the jobs that are there."""

    running: int = 0
    """Jobs that have nodes."""
    pending: int = 0
    """Jobs that wait; tasks of an array that wait together are one."""
    touched: tuple[Touched, ...] = ()
    """The worst fates first."""
    unread: str = ""
    """Why the queue could not be read; empty if it was, or if there is none yet."""
    dangers: tuple[str, ...] = ()
    """What of the change could end jobs, where the queue could not be read."""

    @property
    def lost(self) -> tuple[Touched, ...]:
        """Jobs that would be ended or never start: with `--kill-jobs` they are cancelled."""
        return tuple(item for item in self.touched if item.fate in REFUSED)

    @property
    def refused(self) -> bool:
        """Whether `up` refuses the change without `--kill-jobs`."""
        return bool(self.lost or self.dangers)

    def counts(self) -> dict[Fate, int]:
        """Number of jobs by fate, the worst first."""
        found = Counter(item.fate for item in self.touched)
        return {fate: found[fate] for fate in reversed(list(FATES)) if found[fate]}

    def as_data(self) -> dict[str, Any]:
        """The list for scripts; its keys are described in docs/changes.md."""
        return {
            "running": None if self.unread else self.running,
            "pending": None if self.unread else self.pending,
            "counts": self.counts(),
            "refused": self.refused,
            "unread": self.unread,
            "dangers": list(self.dangers),
            "jobs": [asdict(item) for item in self.touched],
        }


Pods = dict[str, int]
"""By worker pod: seconds that it may wait for its jobs."""


def queue_and_pods(kubectl: Kubectl, namespace: str) -> tuple[Queue, Pods]:
    """What a change is judged by. Raises Failure where slurmctld does not answer."""
    return read_queue(kubectl, namespace), _worker_pods(kubectl, namespace)


def jobs_touched(
    kubectl: Kubectl,
    namespace: str,
    *,
    old: Sequence[Document],
    new: Sequence[Document],
    asked: Future[tuple[Queue, Pods]] | None = None,
) -> JobsTouched:
    """Look at the queue, and say what the change does to the jobs in it.

    `old`: the StatefulSets of controller and worker pools and the ConfigMap of Slurm's files, as they are in the
    cluster; where there is none of them, nothing has run yet. `new`: the objects that are to be. `asked`:
    `queue_and_pods`, where a command has asked already while it did something else.

    What counts is the configuration in force. The ConfigMap may have one that Slurm has rejected, or may be missing.
    """
    if not old:
        return JobsTouched()
    change = ClusterChange(
        pools=pools_of(old),
        new_pools=pools_of(new),
        partitions=partitions_in(slurm_conf_in(old)),
        new_partitions=partitions_in(slurm_conf_in(new)),
    )
    try:
        queue, pods = asked.result() if asked else queue_and_pods(kubectl, namespace)
    except Failure as failure:
        return JobsTouched(unread=str(failure), dangers=change.dangers)
    return _found(queue, replace(change, partitions=partitions_in(queue.stack_conf)).touched(queue, pods))


def jobs_destroyed(kubectl: Kubectl, namespace: str, *, keeps_queue: bool) -> JobsTouched:
    """What taking the cluster down does to its jobs. `keeps_queue`: the volume with slurmctld's state stays.

    Where nobody can read the queue, jobs may be on each worker that runs.
    """
    there = kubectl.items("statefulset,podtemplate", "-n", namespace)
    pools = pools_of(there)
    grace = _worker_pods(kubectl, namespace)
    if not there and not grace:
        return JobsTouched()
    try:
        queue = read_queue(kubectl, namespace)
    except Failure as failure:
        lost = tuple(
            f"{name} waits {span(seconds)} at most for jobs that it may have" for name, seconds in grace.items()
        )
        queue_goes = () if keeps_queue else ("the queue is deleted, and nobody knows what is in it",)
        return JobsTouched(unread=str(failure), dangers=(*lost, *queue_goes))
    change = ClusterChange(pools=pools, new_pools={}, partitions={}, new_partitions={})
    pending = [] if keeps_queue else [job for job in queue.jobs if job.waits]
    return _found(
        queue, (*change.touched(queue, grace), *(touch(job, "never_starts", "the queue is deleted") for job in pending))
    )


def _found(queue: Queue, touched: tuple[Touched, ...]) -> JobsTouched:
    waiting = sum(job.waits for job in queue.jobs)
    return JobsTouched(running=len(queue.jobs) - waiting, pending=waiting, touched=touched)


def _worker_pods(kubectl: Kubectl, namespace: str) -> Pods:
    """Pods are asked themselves: their template may be another one by now."""
    one = '{.metadata.name}{" "}{.spec.terminationGracePeriodSeconds}{"\\n"}'
    printed = kubectl.run(
        "get", "pods", "-n", namespace, "-l", POOL_LABEL, "-o", f"jsonpath={{range .items[*]}}{one}{{end}}"
    ).stdout
    return {name: int(seconds) for name, seconds in map(str.split, printed.splitlines())}


def refuse_lost_jobs(found: JobsTouched, command: str = "up") -> None:
    """Raise Refused if jobs would end or never start, or if nobody can tell."""
    if refused := refusal(found, command):
        raise refused


def refusal(found: JobsTouched, command: str = "up") -> Refused | None:
    """Why `up` or `destroy` refuses without `--kill-jobs`, with the ways out; None if it does not."""
    if found.dangers:
        listed = "\n".join(f"  {line}" for line in found.dangers)
        return Refused(
            f"the queue could not be read ({found.unread}), and this could end jobs:\n{listed}",
            hint="try again in a minute; `slurmstack status` shows why slurmctld does not answer; "
            f"`{command} --kill-jobs` goes on all the same",
        )
    if not found.lost:
        return None
    return Refused(
        f"{len(found.lost)} job{'s' if len(found.lost) > 1 else ''} would end or never start: {_listed(found.lost)}",
        hint="wait until they have ended, "
        + ("move those that wait (`scontrol update jobid=ID partition=NAME`), " if command == "up" else "")
        + f"or cancel them with `{command} --kill-jobs`",
    )


def lines(found: JobsTouched) -> list[str]:
    """The list for people: how many jobs there are, whose fate is what, and each running job that is touched."""
    if found.unread:
        return [f"jobs: the queue could not be read: {found.unread}"]
    if not found.running and not found.pending:
        return []
    head = f"jobs: {found.running} running, {found.pending} pending"
    if not found.touched:
        return [f"{head}; none is touched"]
    running = [item for item in found.touched if item.nodes]
    told = [
        f"  {item.id} {item.user} {item.partition} {item.state} {FATES[item.fate][0]}: {item.why}"
        for item in running[:LINES]
    ]
    more = len(running) - LINES
    waiting = [item for item in found.touched if not item.nodes]
    shares = "; ".join(f"{count} {FATES[fate][count > 1]}" for fate, count in found.counts().items())
    return [
        f"{head}; {shares}",
        *told,
        *([f"  ... and {more} more"] if more > 0 else []),
        *([f"  {_pending(len(waiting))}, as {waiting[0].why}: {_listed(waiting)}"] if waiting else []),
    ]


def _pending(count: int) -> str:
    return f"{count} pending job{'s' if count > 1 else ''} {FATES['never_starts'][count > 1]}"


def cancel_lost_jobs(kubectl: Kubectl, namespace: str, lost: Iterable[Touched]) -> None:
    """Cancel the jobs that the change would end or keep from ever starting, and no other; says which."""
    # scancel does not understand all that squeue prints of an array's tasks, and others of the array may be elsewhere.
    jobs = tuple(lost)
    waiting = {task for item in jobs if not item.nodes for task in task_ids(item.id)}
    running = {item.id for item in jobs if item.nodes}
    for ids, state in ((waiting, ["--state=pending"]), (running, [])):
        if ids:
            scancel = ("xargs", "-n", "500", "scancel", *state)
            done = in_controller(kubectl, namespace, *scancel, stdin="\n".join(sorted(ids)), seconds=600)
            if done.returncode != 0:  # one that has ended meanwhile, as a rule
                say(f"note: {escape(plain(complaint(done)))}")
    if jobs:
        say(f"cancelled: {escape(_listed(jobs))}")


def _listed(jobs: Sequence[Touched]) -> str:
    return ", ".join(item.id for item in jobs[:LINES]) + (", ..." if len(jobs) > LINES else "")
