"""Slurm's records as the figures need them, out of what its commands print with `--json`.

24.11 (data_parser v0.0.42) and 26.05 (v0.0.45).
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from images.common.hostlist import expand
from images.common.slurm_records import NotUnderstoodError, number_of, states_of, text_of

_HELD: Final = frozenset({"JobHeldAdmin", "JobHeldUser"})
_FINISHED: Final = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
)
_UNITS: Final = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_GPUS: Final = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")

GROUPS: Final = 500
"""Users, or accounts of a partition, that are told by name: each has some thirty figures. Without enforcement slurmctld
takes any text for an account, and a user could give each job another one."""

NAME_LENGTH: Final = 128
"""Characters of such a name."""

OTHERS: Final = "(others)"
"""All the rest together."""

Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, or the tasks of an array that still wait together."""

    id: int
    states: frozenset[str]
    reason: str
    partition: str
    user: str
    account: str
    tasks: int
    """Of an array that this record stands for; else 1."""
    cpus: int
    memory: float
    """MiB that it has."""
    gpus: int
    """That it has."""
    nodes: tuple[str, ...]
    min_nodes: int
    max_nodes: int
    eligible: float | None
    """Seconds since 1970; None where that is not known."""
    restarts: int
    asked: Mapping[str, str]
    """Resources of the whole job by their names in Slurm (TRES): `cpu`, `mem`, `gres/gpu`."""
    is_picky: bool
    """Whether it asks for certain nodes, a feature, a reservation or licenses: nobody but Slurm knows what fits it."""

    @property
    def is_pending(self) -> bool:
        """Whether it waits in the queue."""
        return "PENDING" in self.states

    @property
    def is_held(self) -> bool:
        """Whether a person has to let it go."""
        return self.is_pending and self.reason in _HELD

    @property
    def is_finished(self) -> bool:
        """Its base state is one of those that a job ends with; its nodes may still be completing."""
        return bool(self.states & _FINISHED)

    @property
    def has_nodes(self) -> bool:
        """Whether it has nodes, also while it is suspended."""
        return bool(self.states & {"RUNNING", "SUSPENDED"})


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node. Memory is in MiB."""

    name: str
    states: frozenset[str]
    partitions: tuple[str, ...]
    cpus: int
    cpus_effective: int
    cpus_alloc: int
    gpus: int
    gpus_alloc: int
    memory: int
    memory_alloc: int
    memory_effective: int
    memory_free: int
    reason: str
    reason_by: str
    """User that set the reason."""

    @property
    def cpus_idle(self) -> int:
        """Those that a job may have and none has."""
        return max(self.cpus_effective - self.cpus_alloc, 0)


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition, which may have no node."""

    name: str
    cpus: int
    nodes: int


def entries(text: str, kind: str) -> Iterator[Mapping[str, Any]]:
    """Records of a kind, one after the other: all at once 10,000 jobs would be ten times as large as their text.

    Raises NotUnderstoodError where the text has no such list as its first one.
    """
    begin = re.match(rf'\s*{{\s*"{kind}"\s*:\s*\[', text)
    if begin is None:
        raise NotUnderstoodError(f"there is no list of {kind}: {text[:80]!r}")
    decoder, position = json.JSONDecoder(), begin.end()
    between = re.compile(r"[\s,]*")
    while True:
        found = between.match(text, position)
        position = found.end() if found else position
        if text[position : position + 1] == "]":
            return
        try:
            entry, position = decoder.raw_decode(text, position)
        except ValueError as error:
            raise NotUnderstoodError(f"the list of {kind} was not understood: {error}") from error
        yield entry


def job_of(entry: Mapping[str, Any]) -> Job:
    """One of the list of jobs."""
    alloc = tres_of(text_of(entry.get("tres_alloc_str")))
    least = _whole(entry.get("node_count"))
    held_to = ("required_nodes", "features", "resv_name", "licenses", "tres_per_node", "dependency")
    return Job(
        id=_whole(entry.get("job_id")),
        states=states_of(entry.get("job_state")),
        reason=text_of(entry.get("state_reason")),
        # While it waits for several it is counted for the first, as it is only in one for slurmctld.
        partition=text_of(entry.get("partition")).partition(",")[0],
        user=text_of(entry.get("user_name"))[:NAME_LENGTH],
        account=text_of(entry.get("account"))[:NAME_LENGTH],
        tasks=tasks_in(text_of(entry.get("array_task_string"))),
        cpus=_whole(entry.get("cpus")),
        memory=mib(alloc.get("mem", "0")),
        gpus=int(float(alloc.get("gres/gpu", "0"))),
        nodes=expand(text_of(entry.get("nodes"))),
        min_nodes=least,
        max_nodes=max(_whole(entry.get("max_nodes")), least),
        eligible=number_of(entry.get("eligible_time")),
        restarts=_whole(entry.get("restart_cnt")),
        asked=tres_of(text_of(entry.get("tres_req_str"))),
        is_picky=any(text_of(entry.get(key)) for key in held_to),
    )


def node_of(entry: Mapping[str, Any]) -> Node:
    """One of the list of nodes."""
    tres, partitions = tres_of(text_of(entry.get("tres"))), entry.get("partitions")
    cpus, memory = _whole(entry.get("cpus")), _whole(entry.get("real_memory"))
    return Node(
        name=text_of(entry.get("name")),
        states=states_of(entry.get("state")),
        partitions=tuple(partitions) if isinstance(partitions, list) else (),
        cpus=cpus,
        cpus_effective=_whole(entry.get("effective_cpus", cpus)),
        cpus_alloc=_whole(entry.get("alloc_cpus")),
        gpus=int(float(tres.get("gres/gpu", "0"))),
        gpus_alloc=sum(int(number) for number in _GPUS.findall(text_of(entry.get("gres_used")))),
        memory=memory,
        memory_alloc=_whole(entry.get("alloc_memory")),
        memory_effective=memory - _whole(entry.get("specialized_memory")),
        memory_free=_whole(entry.get("free_mem")),
        reason=text_of(entry.get("reason")),
        reason_by=text_of(entry.get("reason_set_by_user")),
    )


def partition_of(entry: Mapping[str, Any]) -> Partition:
    """One of the list of partitions."""
    cpus, nodes = entry.get("cpus") or {}, entry.get("nodes") or {}
    return Partition(name=text_of(entry.get("name")), cpus=_whole(cpus.get("total")), nodes=_whole(nodes.get("total")))


def tres_of(text: str) -> dict[str, str]:
    """`cpu=2,mem=1000M,gres/gpu:h100=1` by name."""
    return {key: value for key, _, value in (part.partition("=") for part in text.split(",")) if value}


def mib(text: str) -> float:
    """Memory as Slurm writes it: `100M`, `1.50G`; without a unit MiB.

    math.inf for what is no number: Slurm writes `1?` where it has no unit for so much.
    """
    unit = text[-1:].upper()
    number, factor = (text[:-1], _UNITS[unit]) if unit in _UNITS else (text, 1)
    try:
        found = float(number) * factor
    except ValueError:
        return math.inf
    return math.inf if math.isnan(found) else found


def tasks_in(text: str) -> int:
    """How many tasks `1-5,7,10-20:5%3` has; 1 where there is no array."""
    total = 0
    for part in text.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        total += len(range(int(first), int(last) + 1, int(step or 1))) if last else 1
    return max(total, 1)


def largest(groups: Iterable[Group]) -> frozenset[Group]:
    """Those that come up most often, at most GROUPS; of equals the same ones each time."""
    counts = Counter(groups)
    return frozenset(sorted(counts, key=lambda group: (-counts[group], str(group)))[:GROUPS])


def _whole(value: object) -> int:
    """A number that may be unset, in which case it is 0."""
    return int(number_of(value) or 0)
