"""What the page shows, from what Slurm's commands say: nodes by pool, the queue by partition, jobs.

All in words that are fit to be shown: what users wrote is cleaned, and times are as people say them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from images.common.slurm_jobs import RUNNING, Job
from images.common.slurm_records import count, gpus
from images.dashboard.slurm import Record

LONGEST = 200
"""Letters of a name or a reason that are shown; Slurm takes far longer ones."""


def clean(text: str) -> str:
    """Text of a user, in which nothing hides or turns the order of letters around. It still has to be escaped."""
    if len(text) <= LONGEST and text.isascii() and text.isprintable():
        return text  # nearly all, and 10,000 jobs have many
    shown = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter)[0] == "C" else letter
        for letter in text[: LONGEST + 1]
    )
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def duration(seconds: float) -> str:
    """As `4 min` or `2 d 3 h`: at most two units, rounded down."""
    left = max(0, int(seconds))
    if left < 60:
        return f"{left} s"
    units = ((86_400, "d"), (3_600, "h"), (60, "min"))
    first = next(index for index, (size, _) in enumerate(units) if left >= size)
    parts = []
    for size, name in units[first : first + 2]:
        whole, left = divmod(left, size)
        if whole:
            parts.append(f"{whole} {name}")
    return " ".join(parts)


def moment(seconds: int) -> str:
    """A time in UTC, to the minute."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


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
    cpus: int
    busy_cpus: int
    gpus: int
    busy_gpus: int
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
    """Waiting time of those that are not held."""


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
    busy, _, _, cpus = (count(part) for part in (record["CPUsState"].split("/") + ["0"] * 4)[:4])
    return Node(
        name=record["NodeHost"],
        state=f"{word}, not responding" if silent else word,
        kind="down" if silent and word != "idle" else _KINDS.get(word, "other"),
        reason="" if record["Reason"] == "none" else record["Reason"],
        cpus=cpus,
        busy_cpus=busy,
        gpus=gpus(record["Gres"]),
        busy_gpus=gpus(record["GresUsed"]),
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
    )


def _waits_for_turn(job: Job, now: float) -> bool:
    return job.reason not in _OWN_DOING and job.eligible is not None and job.eligible <= now


def row(job: Job, now: float) -> dict[str, str | int]:
    """One row of the list of jobs, with nothing that hides, whoever wrote it. What slurmctld does not know is empty."""
    submitted = now if job.submitted is None else job.submitted
    shown = {
        "number": job.id, "name": job.name, "user": job.user, "account": job.account,
        "partition": ",".join(job.partitions),
        "state": job.state.lower().replace("_", " "),
        "why": job.reason if job.waits else job.node_list,
    }  # fmt: skip
    return {
        **{name: clean(text) for name, text in shown.items()},
        "time": duration(now - submitted if job.waits else job.used or 0),
        "limit": "" if job.limit is None else duration(job.limit),
        "nodes": job.min_nodes,
        "cpus": job.cpus,
    }
