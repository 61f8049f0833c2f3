"""What the page shows, from what Slurm's commands say: nodes by pool, the queue by partition, jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, Literal

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
_GPUS: Final = re.compile(r"(?:^|,)gpu(?::[^:,()]*[^\d:,()][^:,()]*)?:(\d+)")
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
class Job:
    """A job in the queue."""

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
    expected: str
    """When one that waits is expected to start; empty where slurmctld does not know."""
    nodes: str
    cpus: str
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
        gpus=_gpus(record["Gres"]),
        busy_gpus=_gpus(record["GresUsed"]),
        memory=f"{gibibytes(number(record['AllocMem']))} of {gibibytes(number(record['Memory']))} GiB",
        partitions=tuple(dict.fromkeys(partitions)),
    )


def _gpus(gres: str) -> int:
    """`gpu:h100:8(S:0-1),shard:16` has 8."""
    return sum(int(count) for count in _GPUS.findall(gres))


def _cleaned(record: Record) -> Record:
    """With nothing that hides, whoever wrote it: most of it is Slurm's own, but nobody has to know which part."""
    return {name: "" if value == "(null)" else clean(value) for name, value in record.items()}


def pools(found: Sequence[Node]) -> list[Pool]:
    """Nodes by their pool."""
    names = dict.fromkeys(node.pool for node in found)
    return [Pool(name=name, nodes=tuple(node for node in found if node.pool == name)) for name in names]


def queues(jobs: Iterable[Record], found: Sequence[Node], now: float) -> list[Queue]:
    """One row for each partition. A job that may run in several counts in each."""
    by_partition: dict[str, list[Record]] = {}
    for node in found:
        for name in node.partitions:
            by_partition.setdefault(name, [])
    for job in jobs:
        for name in job["Partition"].split(","):
            by_partition.setdefault(name, []).append(job)
    return [_queue(name, rows, found, now) for name, rows in sorted(by_partition.items())]


def _queue(name: str, jobs: Sequence[Record], found: Sequence[Node], now: float) -> Queue:
    pending = [job for job in jobs if job["State"] == "PENDING"]
    waits = [now - number(job["EligibleTime"]) for job in pending if _waits(job, now)]
    return Queue(
        partition=clean(name),
        nodes=sum(name in node.partitions for node in found),
        running=sum(job["State"] == "RUNNING" for job in jobs),
        pending=sum(tasks(job) for job in pending),
        held=sum(tasks(job) for job in pending if not _waits(job, now)),
        longest=duration(max(waits)) if waits else "-",
        middle=duration(median(waits)) if waits else "-",
    )


def tasks(job: Record) -> int:
    """How many jobs a row of squeue is: `7_[1-4,9-20:2%3]` has ten that wait."""
    array = re.search(r"_\[([^]%]*)", job["JobArrayID"]) if "[" in job["JobArrayID"] else None
    return sum(_steps(part) for part in array[1].split(",")) if array else 1


def _steps(part: str) -> int:
    found = re.fullmatch(r"(\d+)-(\d+)(?::(\d+))?", part)
    return (int(found[2]) - int(found[1])) // int(found[3] or 1) + 1 if found else 1


def _waits(job: Record, now: float) -> bool:
    return job["Reason"] not in _OWN_DOING and 0 < number(job["EligibleTime"]) <= now


def job(record: Record, now: float) -> Job:
    """One row of the list of jobs."""
    record = _cleaned(record)
    waits = record["State"] == "PENDING"
    start = number(record["StartTime"])
    return Job(
        number=record["JobArrayID"],
        name=record["Name"],
        user=record["UserName"],
        account=record["Account"],
        partition=record["Partition"],
        state=record["State"].lower().replace("_", " "),
        why=record["Reason"] if waits else record["NodeList"],
        time=duration(now - number(record["SubmitTime"])) if waits else record["TimeUsed"],
        limit=record["TimeLimit"],
        expected=moment(start) if waits and start else "",
        nodes=record["NumNodes"],
        cpus=record["NumCPUs"],
        comment=record["Comment"],
    )
