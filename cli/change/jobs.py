"""Which running and pending jobs a change touches, and how, by the live queue: for `preview`, `up` and `destroy`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from cli.errors import Failure, Refused
from cli.kubectl.client import Kubectl, complaint, in_controller, labels_of
from cli.text import ago
from images.common.slurm_conf import IN_FORCE, without_block
from images.common.slurm_conf import SLURM_CONF as CONF
from images.common.slurm_jobs import ENDED, Job, JobList
from images.common.slurm_records import NotUnderstoodError
from slurm.names import CONFIG_MAP, POOL_LABEL

Document = Mapping[str, Any]
"""A Kubernetes object."""

JOBS = JobList("id", "user", "partitions", "state", "node_list", "left", "limit")
"""What a change may touch of a job."""

LINES = 20
"""Jobs that are named at most."""

USUAL_SECONDS = 7 * 24 * 3600
"""What a job without a time limit is taken to need at most: how long a leaving node waits by default. A shorter
`drain_timeout` is somebody's decision, and the job may be one that it hurts."""

_TIMEOUT = 10
"""Seconds that slurmctld may take to answer; squeue alone would try for minutes."""

_END_OF_FILE = "# the queue"

_OPTION = re.compile(r'([^\s=]+)\s*=\s*("[^"]*"|\S+)')

JobEffect = Literal["waits", "never_starts", "ends"]

JOB_EFFECTS: Mapping[JobEffect, tuple[str, str]] = {
    "waits": ("is waited for", "are waited for"),
    "never_starts": ("never starts", "never start"),
    "ends": ("is ended", "are ended"),
}
"""What becomes of one job, and of several, in people's words; the worst comes last. `up` brings the last two upon
nobody unasked."""

_SEVERITY = list(JOB_EFFECTS)


# What there is


@dataclass(frozen=True, kw_only=True)
class Queue:
    """What slurmctld says at one moment, and Kubernetes of the workers."""

    jobs: tuple[Job, ...]
    slurm_conf: str
    """The slurm.conf in force, as the stack file has made it."""
    grace: Mapping[str, int]
    """By worker pod: seconds that it may wait for its jobs. Its template may be another one by now."""

    @property
    def waiting(self) -> int:
        """Number of jobs that wait."""
        return sum(job.waits for job in self.jobs)


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
    # Without the partitions that left the stack file and are kept for their jobs.
    return Queue(jobs=found, slurm_conf=without_block({CONF: slurm_conf})[CONF], grace=_grace(kubectl, namespace))


def _grace(kubectl: Kubectl, namespace: str) -> dict[str, int]:
    one = '{.metadata.name}{" "}{.spec.terminationGracePeriodSeconds}{"\\n"}'
    printed = kubectl.run(
        "get", "pods", "-n", namespace, "-l", POOL_LABEL, "-o", f"jsonpath={{range .items[*]}}{one}{{end}}"
    ).stdout
    return {name: int(seconds) for name, seconds in map(str.split, printed.splitlines())}


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A worker pool's StatefulSet, as jobs see it."""

    size: int
    """Of an elastic one it only counts that there are nodes for whoever waits."""
    grace: int
    """Seconds that a leaving pod may wait for its jobs."""
    is_elastic: bool = False
    gives_back: bool = False
    """Whether a pod that is told to go gives its jobs back at once (`preemptible`)."""


def pools_of(documents: Iterable[Document]) -> dict[str, Pool]:
    """The worker pools among some Kubernetes objects; of one that changes its kind, the elastic half counts."""
    found = [item for item in documents if POOL_LABEL in labels_of(item)]
    return {
        labels_of(item)[POOL_LABEL]: _pool(item)
        for kind in ("StatefulSet", "PodTemplate")
        for item in found
        if item.get("kind", "StatefulSet") == kind
    }


def _pool(item: Document) -> Pool:
    is_elastic = item.get("kind") == "PodTemplate"
    pod = (item if is_elastic else item["spec"])["template"]["spec"]
    slurmd: Document = next((item for item in pod["containers"] if item["name"] == "slurmd"), {})
    variables = {item["name"]: item.get("value", "") for item in slurmd.get("env") or []}
    return Pool(
        size=1 if is_elastic else int(item["spec"].get("replicas", 1)),
        grace=int(pod.get("terminationGracePeriodSeconds", 30)),
        is_elastic=is_elastic,
        gives_back=variables.get("PREEMPTIBLE") == "yes",
    )


def slurm_conf_in(documents: Iterable[Document]) -> str:
    """The slurm.conf in the stack's ConfigMap; empty if it is not there."""
    for item in documents:
        if item.get("kind") == "ConfigMap" and item["metadata"]["name"] == CONFIG_MAP:
            return str((item.get("data") or {}).get("slurm.conf", ""))
    return ""


def partitions_in(slurm_conf: str) -> dict[str, tuple[str, ...]]:
    """The partitions of a slurm.conf and their pools, as we write them: one partition a line."""
    lines = (line for line in slurm_conf.splitlines() if line.lower().startswith("partitionname="))
    found = ({name.lower(): text for name, text in _OPTION.findall(line)} for line in lines)
    return {options["partitionname"]: tuple(options.get("nodes", "").split(",")) for options in found}


# What becomes of it


@dataclass(frozen=True, kw_only=True)
class Touched:
    """A job that a change touches."""

    id: str
    """As squeue shows it."""
    user: str
    partition: str
    """All that it names, joined by commas, if it waits."""
    state: str
    nodes: tuple[str, ...]
    effect: JobEffect
    why: str
    """Which change does it, and how."""


@dataclass(frozen=True, kw_only=True)
class JobsTouched:
    """What a change does to the jobs that are there."""

    running: int = 0
    """Jobs that have nodes."""
    pending: int = 0
    """Jobs that wait; tasks of an array that wait together are one."""
    touched: tuple[Touched, ...] = ()
    """The worst effects first."""
    unread: str = ""
    """Why the queue could not be read; empty if it was, or if there is none yet."""
    dangers: tuple[str, ...] = ()
    """What of the change could end jobs, where the queue could not be read."""

    @property
    def lost(self) -> tuple[Touched, ...]:
        """Jobs that would be ended or never start: with `--kill-jobs` they are cancelled."""
        return tuple(item for item in self.touched if item.effect != "waits")

    @property
    def refused(self) -> bool:
        """Whether `up` refuses the change without `--kill-jobs`."""
        return bool(self.lost or self.dangers)

    def counts(self) -> dict[JobEffect, int]:
        """Number of jobs by effect, the worst first."""
        found = Counter(item.effect for item in self.touched)
        return {effect: found[effect] for effect in reversed(_SEVERITY) if found[effect]}

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


def jobs_touched(
    kubectl: Kubectl,
    namespace: str,
    *,
    old: Sequence[Document],
    new: Sequence[Document],
    asked: Future[Queue] | None = None,
) -> JobsTouched:
    """Look at the queue, and say what the change does to the jobs in it.

    `old`: the StatefulSets of controller and worker pools and the ConfigMap of Slurm's files, as they are in the
    cluster; where there is none of them, nothing has run yet. `new`: the objects that are to be. `asked`:
    `read_queue`, where a command has asked already while it did something else.

    What counts is the configuration in force. The ConfigMap may have one that Slurm has rejected, or may be missing.
    """
    if not old:
        return JobsTouched()
    pools, new_pools = pools_of(old), pools_of(new)
    new_partitions = partitions_in(slurm_conf_in(new))
    try:
        queue = asked.result() if asked else read_queue(kubectl, namespace)
    except Failure as failure:
        change = _Change(pools, new_pools, partitions_in(slurm_conf_in(old)), new_partitions)
        return JobsTouched(unread=str(failure), dangers=change.dangers)
    return _Change(pools, new_pools, partitions_in(queue.slurm_conf), new_partitions).touched(queue)


def jobs_destroyed(kubectl: Kubectl, namespace: str, *, keeps_queue: bool) -> JobsTouched:
    """What taking the cluster down does to its jobs. `keeps_queue`: the volume with slurmctld's state stays.

    Where nobody can read the queue, jobs may be on each worker that runs.
    """
    there = kubectl.items("statefulset,podtemplate", "-n", namespace)
    grace = _grace(kubectl, namespace)
    if not there and not grace:
        return JobsTouched()
    try:
        queue = read_queue(kubectl, namespace)
    except Failure as failure:
        lost = [f"{name} waits {ago(seconds)} at most for jobs that it may have" for name, seconds in grace.items()]
        queue_goes = [] if keeps_queue else ["the queue is deleted, and nobody knows what is in it"]
        return JobsTouched(unread=str(failure), dangers=(*lost, *queue_goes))
    return _Change(pools_of(there), keeps_queue=keeps_queue).touched(queue)


@dataclass(frozen=True)
class _Change:
    """A cluster before and after an update: its pools, and its partitions, each with its pools."""

    pools: Mapping[str, Pool]
    new_pools: Mapping[str, Pool] = field(default_factory=dict)
    partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    new_partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keeps_queue: bool = True

    def touched(self, queue: Queue) -> JobsTouched:
        """The jobs that it touches, the worst effects first, each once."""
        found = [
            Touched(
                id=job.id, user=job.user, partition=",".join(job.partitions), state=job.state, nodes=job.nodes,
                effect=worst[0], why=worst[1],
            )
            for job in queue.jobs
            if (worst := self._worst(job, queue.grace)) is not None
        ]  # fmt: skip
        found.sort(key=lambda item: -_SEVERITY.index(item.effect))
        return JobsTouched(running=len(queue.jobs) - queue.waiting, pending=queue.waiting, touched=tuple(found))

    @property
    def dangers(self) -> tuple[str, ...]:
        """What of it could end jobs, whichever there are."""
        partitions = [
            f"partition {name!r} leaves with all its pools"
            for name, pools in self.partitions.items()
            if name not in self.new_partitions and not any(pool in self.new_pools for pool in pools)
        ]
        lose = [name for name, pool in self.pools.items() if pool.size and self._leaving_from(name)]
        return (*partitions, *(f"nodes of pool {name!r} leave" for name in lose))

    def _worst(self, job: Job, grace: Mapping[str, int]) -> tuple[JobEffect, str] | None:
        """The worst that it does to a job, and why; None if it does nothing to it."""
        if not job.waits:
            found = [self._of_node(job, node, grace) for node in job.nodes]
            return max(filter(None, found), key=lambda item: _SEVERITY.index(item[0]), default=None)
        if not self.keeps_queue:
            return "never_starts", "the queue is deleted"
        gone = all(map(self._partition_goes, job.partitions))
        return ("never_starts", "the partition leaves with its nodes") if gone else None

    def _of_node(self, job: Job, node: str, grace: Mapping[str, int]) -> tuple[JobEffect, str] | None:
        """What becomes of a running job by one of its nodes, whose pod may have been made to wait otherwise."""
        name, _, ordinal = node.rpartition("-")
        first, why = self._leaving_from(name) or (0, "")
        if not why or not ordinal.isdigit() or int(ordinal) < first:
            return None
        pool = self.pools.get(name)
        if pool is not None and pool.gives_back:
            return "ends", f"{why}, and {node} gives its jobs back at once"
        seconds = grace.get(node, pool.grace if pool else 0)
        waits = f"{why}; {node} waits {ago(seconds)} at most"
        if (USUAL_SECONDS if job.left is None else job.left) <= seconds:
            return "waits", waits if job.left is None else f"{why}; {node} waits for it"
        longer = "has no time limit" if job.left is None else f"may run for another {ago(job.left)}"
        return "ends", f"{waits}, but the job {longer}"

    def _leaving_from(self, name: str) -> tuple[int, str] | None:
        """From which number on the nodes of a pool leave, and why; None if none does, or it is no pool.

        From a pool that stays elastic nodes go when they are idle.
        """
        before, after = self.pools.get(name), self.new_pools.get(name)
        if after is None:  # of one that is not there a `destroy` that was cut off has left the pods
            return (0, f"pool {name!r} leaves") if before or not self.new_pools else None
        if before is not None and before.is_elastic != after.is_elastic:
            return 0, f"pool {name!r} becomes {'elastic' if after.is_elastic else 'fixed'}"
        if before is not None and not after.is_elastic and after.size < before.size:
            return after.size, f"pool {name!r} shrinks to {after.size}"
        return None

    def _partition_goes(self, name: str) -> bool:
        """Whether a partition leaves and can run no job any more.

        The configuration agent keeps one that leaves for the jobs that are in it, so with a node they still start.
        """
        if name not in self.partitions or name in self.new_partitions:
            return False
        left = (self.new_pools.get(pool) for pool in self.partitions[name])
        return not any(pool is not None and pool.size for pool in left)


# What is said about it


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
        f"{len(found.lost)} job{'s' if len(found.lost) > 1 else ''} would end or never start: {first_ids(found.lost)}",
        hint="wait until they have ended, "
        + ("move those that wait (`scontrol update jobid=ID partition=NAME`), " if command == "up" else "")
        + f"or cancel them with `{command} --kill-jobs`",
    )


def lines(found: JobsTouched) -> list[str]:
    """The list for people: how many jobs there are, what happens to them, and each running job that is touched."""
    if found.unread:
        return [f"jobs: the queue could not be read: {found.unread}"]
    if not found.running and not found.pending:
        return []
    head = f"jobs: {found.running} running, {found.pending} pending"
    if not found.touched:
        return [f"{head}; none is touched"]
    shares = "; ".join(f"{count} {JOB_EFFECTS[effect][count > 1]}" for effect, count in found.counts().items())
    running = [item for item in found.touched if item.nodes]
    rows = [f"{it.id} {it.user} {it.partition} {it.state} {JOB_EFFECTS[it.effect][0]}: {it.why}" for it in running]
    if len(running) > LINES:
        rows[LINES:] = [f"... and {len(running) - LINES} more"]
    if waiting := [item for item in found.touched if not item.nodes]:
        many = len(waiting) > 1
        never = f"{len(waiting)} pending job{'s' if many else ''} {JOB_EFFECTS['never_starts'][many]}"
        rows.append(f"{never}, as {waiting[0].why}: {first_ids(waiting)}")
    return [f"{head}; {shares}", *(f"  {row}" for row in rows)]


def first_ids(jobs: Sequence[Touched]) -> str:
    """Ids of the first LINES jobs, as squeue shows them, joined by commas."""
    return ", ".join(item.id for item in jobs[:LINES]) + (", ..." if len(jobs) > LINES else "")
