"""What the page shows, from what Slurm's commands say: nodes by pool, the queue by partition, jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

from images.common.slurm_jobs import RUNNING, Job
from images.common.slurm_records import gpus
from images.dashboard.slurm import Record
from images.dashboard.text import clean, duration, gibibytes, moment, number

Kind = Literal["idle", "busy", "drained", "down", "other"]
"""What a tile looks like. It says the state itself, too."""

FLAGS: Final = "*~#!%$@^-+"
"""What sinfo puts behind a state; `*`: the node does not respond."""

_KINDS: Final[dict[str, Kind]] = {
    "idle": "idle", "allocated": "busy", "mixed": "busy", "completing": "busy", "drained": "drained",
    "draining": "drained", "down": "down", "fail": "down", "failing": "down", "error": "down", "unknown": "down",
}  # fmt: skip
_OWN_DOING: Final = frozenset(
    {"Dependency", "DependencyNeverSatisfied", "JobHeldUser", "JobHeldAdmin", "BeginTime", "JobArrayTaskLimit"}
)
"""Reasons for which a job waits because somebody wanted it so: nobody can be faster for it."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node as sinfo has it."""

    name: str
    state: str
    """Slurm's word, and whether the node responds."""
    kind: Kind
    reason: str
    by: str
    since: str
    """When the reason was given; empty without one."""
    cpus: int
    busy_cpus: int
    gpus: int
    busy_gpus: int
    memory: str
    partitions: tuple[str, ...]

    @property
    def pool(self) -> str:
        """The pool of the stack file: nodes are called after it."""
        return self.name.rpartition("-")[0] or self.name

    @property
    def needs_somebody(self) -> bool:
        """Whether it is out of service."""
        return self.kind in {"drained", "down"}


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Nodes of one kind."""

    name: str
    nodes: tuple[Node, ...]

    @property
    def usable(self) -> int:
        """Nodes that take jobs."""
        return sum(not node.needs_somebody for node in self.nodes)


@dataclass(frozen=True, kw_only=True)
class Queue:
    """What waits and runs in one partition. Each task of a job array counts, as in Slurm's own figures."""

    partition: str
    nodes: int
    running: int
    pending: int
    held: int
    """Those of `pending` that wait for a dependency, a time, or to be released."""
    longest: str
    middle: str
    """Median of the waiting times of those that are not held, a job array once."""


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """A job in the queue, as the page writes it."""

    number: str
    name: str
    user: str
    account: str
    partition: str
    state: str
    why: str
    """Nodes of one that runs; the reason of one that waits."""
    time: str
    """How long it has run or waited."""
    limit: str
    """Of its time; empty where it has none."""
    expected: str
    """When one that waits is expected to start; empty where slurmctld does not know."""
    nodes: int
    cpus: int
    comment: str


def nodes(records: Iterable[Record]) -> list[Node]:
    """Each node once; in the order of pools and numbers."""
    partitions: dict[str, list[str]] = {}
    found: dict[str, Record] = {}
    for record in records:
        partitions.setdefault(record["NodeHost"], []).append(record["Partition"].rstrip("*"))
        found[record["NodeHost"]] = record
    made = [_node(record, partitions[name]) for name, record in found.items()]
    return sorted(made, key=lambda node: (node.pool, len(node.name), node.name))


def _node(record: Record, partitions: Sequence[str]) -> Node:
    record = _cleaned(record)
    word = record["StateLong"].rstrip(FLAGS)
    silent = "*" in record["StateLong"]
    busy, _, _, cpus = (number(part) for part in (record["CPUsState"].split("/") + ["0"] * 4)[:4])
    reason = "" if record["Reason"] == "none" else record["Reason"]
    set_at = number(record["Timestamp"])
    return Node(
        name=record["NodeHost"],
        state=f"{word}, not responding" if silent else word,
        kind="down" if silent and word != "idle" else _KINDS.get(word, "other"),
        reason=reason,
        by=record["User"].partition("(")[0] if reason else "",
        since=moment(set_at) if reason and set_at else "",
        cpus=cpus,
        busy_cpus=busy,
        gpus=gpus(record["Gres"]),
        busy_gpus=gpus(record["GresUsed"]),
        memory=f"{gibibytes(number(record['AllocMem']))} of {gibibytes(number(record['Memory']))} GiB",
        partitions=tuple(dict.fromkeys(partitions)),
    )


def _cleaned(record: Record) -> Record:
    """With nothing that hides, whoever wrote it: most of it is Slurm's own, but nobody has to know which part."""
    return {name: "" if value == "(null)" else clean(value) for name, value in record.items()}


def pools(found: Sequence[Node]) -> list[Pool]:
    """Nodes by their pool."""
    names = dict.fromkeys(node.pool for node in found)
    return [Pool(name=name, nodes=tuple(node for node in found if node.pool == name)) for name in names]


def queues(jobs: Iterable[Job], found: Sequence[Node], now: float) -> list[Queue]:
    """One row for each partition. A job that may run in several counts in each."""
    by_partition: dict[str, list[Job]] = {}
    for node in found:
        for name in node.partitions:
            by_partition.setdefault(name, [])
    for job in jobs:
        for name in job.partitions:
            by_partition.setdefault(name, []).append(job)
    return [_queue(name, rows, found, now) for name, rows in sorted(by_partition.items())]


def _queue(name: str, jobs: Sequence[Job], found: Sequence[Node], now: float) -> Queue:
    pending = [job for job in jobs if job.waits]
    waits = [now - job.eligible for job in pending if job.eligible is not None and _waits_for_turn(job, now)]
    return Queue(
        partition=clean(name),
        nodes=sum(name in node.partitions for node in found),
        running=sum(job.base_state == RUNNING for job in jobs),
        pending=sum(job.tasks for job in pending),
        held=sum(job.tasks for job in pending if not _waits_for_turn(job, now)),
        longest=duration(max(waits)) if waits else "-",
        middle=duration(median(waits)) if waits else "-",
    )


def _waits_for_turn(job: Job, now: float) -> bool:
    return job.reason not in _OWN_DOING and job.eligible is not None and job.eligible <= now


def row(job: Job, now: float) -> JobRow:
    """One row of the list of jobs, with nothing that hides, whoever wrote it."""
    submitted = now if job.submitted is None else job.submitted
    return JobRow(
        number=clean(job.id),
        name=clean(job.name),
        user=clean(job.user),
        account=clean(job.account),
        partition=clean(",".join(job.partitions)),
        state=clean(job.state.lower().replace("_", " ")),
        why=clean(job.reason if job.waits else job.node_list),
        time=duration(now - submitted if job.waits else job.used or 0),
        limit="" if job.limit is None else duration(job.limit),
        expected=moment(int(job.start)) if job.waits and job.start else "",
        nodes=job.min_nodes,
        cpus=job.cpus,
        comment=clean(job.comment),
    )
