"""The live queue: what `squeue` says, and the configuration that slurmctld runs with."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import typer

from cli.errors import Failure
from cli.kubectl.client import Kubectl, complaint, in_controller
from config.times import seconds
from images.common.hostlist import expand
from images.common.slurm_conf import SLURM_CONF as CONF
from images.controller.configuration import SLURM_CONF
from images.controller.leaving import without_block
from slurm.names import CONTROLLER, CONTROLLER_HOST

FIELDS = ("%i", "%u", "%P", "%T", "%N", "%L", "%l", "%D", "%c", "%m", "%f", "%n")
"""What is asked of a job, in the order of `Job`: letters that squeue has had for long, and prints in full."""

SEPARATOR = "\t"
"""Between fields: in none of them, unlike `|`, which constraints have."""

_TIMEOUT = 10
"""Seconds that slurmctld may take to answer; squeue alone would try for minutes."""

STARTING = 30
"""Seconds that a controller is waited for which is starting."""

_PAUSE = 0.5
"""Seconds between two tries meanwhile."""

_END_OF_FILE = "# the queue"

_WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
_ENDED = "COMPLETING"

_ID = re.compile(r"\d+(\+\d+|_\d+|_\[[\d,:%-]+\])?")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?(?::(\d+))?")

_NO_LIMIT = 365 * 24 * 3600
"""Seconds of the limit that the backfill scheduler gives to a job that has none, when it starts it."""

_MEMORY = re.compile(r"([\d.]+)([KMGTP]?)")
_UNITS = {"K": 2**-10, "": 1.0, "M": 1.0, "G": 2.0**10, "T": 2.0**20, "P": 2.0**30}


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that has not ended, as far as a change may touch it. Tasks of an array that wait together are one."""

    id: str
    """As squeue shows it and scancel takes it: `12`, `12_3`, `12_[4-100]`."""
    user: str
    partitions: tuple[str, ...]
    """One that waits may name several."""
    state: str
    nodes: tuple[str, ...]
    """Where it runs; empty while it waits."""
    left: int | None
    """Seconds that its time limit leaves it; None if there is no limit."""
    limit: int | None
    """Its time limit in seconds; None if there is none."""
    min_nodes: int
    min_cpus: int
    """CPUs that it needs on each node."""
    min_memory: float
    """Memory in MiB that it needs on a node at least: its `--mem`, or that of one CPU."""
    constraint: str
    """As written in `--constraint`; empty for none."""
    wanted_nodes: tuple[str, ...]
    """Nodes that it must have (`--nodelist`)."""

    @property
    def waits(self) -> bool:
        """Whether it has no nodes yet."""
        return self.state in _WAITING


@dataclass(frozen=True, kw_only=True)
class Queue:
    """What slurmctld says at one moment."""

    jobs: tuple[Job, ...]
    slurm_conf: str
    """The slurm.conf in force, with what the configuration agent added to it."""

    @property
    def stack_conf(self) -> str:
        """The same as the stack file has made it: without the partitions that left it and are kept for their jobs."""
        return without_block({CONF: self.slurm_conf})[CONF]


def read_queue(kubectl: Kubectl, namespace: str) -> Queue:
    """Ask slurmctld, in one call. Raises Failure with the reason if it does not answer."""
    squeue = f"squeue --all --noheader --format='{SEPARATOR.join(FIELDS)}'"
    # Without SLURM_BITSTR_LEN=0 the tasks of an array are cut off after 64 characters.
    script = f"cat {SLURM_CONF} && echo '{_END_OF_FILE}' && SLURM_BITSTR_LEN=0 timeout {_TIMEOUT} {squeue}"
    done = in_controller(kubectl, namespace, "sh", "-c", script)
    if done.returncode != 0:
        raise Failure(complaint(done) if done.returncode != 124 else f"no answer within {_TIMEOUT} s")
    slurm_conf, _, jobs = done.stdout.partition(f"{_END_OF_FILE}\n")
    return Queue(jobs=parse_jobs(jobs), slurm_conf=slurm_conf)


def read_patiently(kubectl: Kubectl, namespace: str) -> Queue:
    """Read the queue; a controller that is starting is waited for. Raises Failure."""
    try:
        return read_queue(kubectl, namespace)
    except Failure as failure:
        return await_queue(kubectl, namespace, failure)


def await_queue(kubectl: Kubectl, namespace: str, failure: Failure) -> Queue:
    """Read the queue once more after a failure, for STARTING s if the controller is on its way.

    Raises the failure at once if it is not, else the last one.
    """
    if not _is_starting(kubectl, namespace):
        raise failure
    typer.echo(f"{CONTROLLER_HOST} is starting: waiting until it answers, {STARTING} s at most", err=True)
    deadline = time.monotonic() + STARTING
    while time.monotonic() < deadline:
        time.sleep(_PAUSE)
        try:
            return read_queue(kubectl, namespace)
        except Failure as last:
            failure = last
    raise Failure(f"{CONTROLLER_HOST} is starting, and does not answer after {STARTING} s: {failure}")


def _is_starting(kubectl: Kubectl, namespace: str) -> bool:
    """Whether there is to be a controller whose pod is away, leaves, or has just begun to run."""
    found = kubectl.items(f"statefulset/{CONTROLLER}", f"pod/{CONTROLLER_HOST}", "-n", namespace)
    staying = {item["kind"]: item for item in found if "deletionTimestamp" not in item["metadata"]}
    if "StatefulSet" not in staying or "Pod" not in staying:
        return "StatefulSet" in staying
    containers = staying["Pod"].get("status", {}).get("containerStatuses", [])
    started = [container.get("state", {}).get("running", {}).get("startedAt") for container in containers]
    recently = datetime.now(UTC) - timedelta(seconds=STARTING)
    return not started or not all(started) or max(map(datetime.fromisoformat, started)) > recently


def parse_jobs(printed: str) -> tuple[Job, ...]:
    """The jobs in what squeue printed, but those that only clean up.

    Users can have separators and ends of lines in the last field (`scontrol update reqnodelist=`): what follows there
    is no job, and takes none away.
    """
    lines = [line.split(SEPARATOR, len(FIELDS) - 1) for line in printed.split("\n")]
    whole = [line for line in lines if len(line) == len(FIELDS) and _ID.fullmatch(line[0])]
    return tuple(_job(line) for line in whole if line[3] != _ENDED)


def task_ids(id_: str) -> Iterator[str]:
    """What squeue shows together as `12_[4-100:3,107%8]`, each as scancel takes it: `12_4`, `12_7`, ..."""
    array, together, tasks = id_.partition("_[")
    if not together:
        yield id_
    for first, last, step in _RANGE.findall(tasks.partition("%")[0]):
        yield from (f"{array}_{task}" for task in range(int(first), int(last or first) + 1, int(step or 1)))


def _job(fields: list[str]) -> Job:
    id_, user, partitions, state, nodes, left, limit, min_nodes, min_cpus, memory, constraint, wanted = fields
    limited = (_seconds(limit) or _NO_LIMIT) < _NO_LIMIT
    return Job(
        id=id_,
        user=user,
        partitions=tuple(partitions.split(",")),
        state=state,
        nodes=expand(nodes),
        left=_seconds(left) if limited else None,
        limit=_seconds(limit) if limited else None,
        min_nodes=_number(min_nodes),
        min_cpus=_number(min_cpus),
        min_memory=_mebibytes(memory),
        constraint="" if constraint == "(null)" else constraint,
        wanted_nodes=expand("" if wanted == "(null)" else wanted),
    )


def _seconds(text: str) -> int | None:
    """None as well for what squeue has no number for (`NOT_SET`, `INVALID`)."""
    return seconds(text) if re.fullmatch(r"[\d:-]*\d[\d:-]*", text) else None


def _number(text: str) -> int:
    """The least that a number or a range may mean."""
    found = re.match(r"\d+", text)
    return int(found[0]) if found else 0


def _mebibytes(text: str) -> float:
    found = _MEMORY.match(text)
    return float(found[1]) * _UNITS[found[2]] if found else 0.0
