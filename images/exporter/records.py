"""Slurm's records as the figures need them.

Nodes and partitions are out of `--json` (24.11: data_parser v0.0.42, 26.05: v0.0.45), jobs out of columns of squeue.
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

_FINISHED: Final = frozenset(
    {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"}
)
_HELD: Final = frozenset({"JobHeldAdmin", "JobHeldUser", "job_requeued_in_held_state", "launch_failed_requeued_held"})
"""Reasons; the last two are what squeue has in place of one of the others."""

BASE_STATES: Final = _FINISHED | {"PENDING", "RUNNING", "SUSPENDED"}

_UNITS: Final = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_GPUS: Final = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d+)")

_PICKY: Final = (
    "ReqNodes", "ExcNodes", "Feature", "ClusterFeature", "Reservation", "Licenses", "Dependency", "tres-per-job",
    "tres-per-node", "tres-per-socket", "tres-per-task", "cpus-per-tres", "mem-per-tres", "Contiguous", "ReqSwitch",
    "MinTmpDisk", "SCT", "NTPerCore", "NTPerSocket", "Network", "MCSLabel", "BurstBuffer", "CoreSpec", "HetJobID",
)  # fmt: skip
"""What a job may ask for that is not compared with nodes."""

_NOT_ASKED: Final = frozenset({"", "N/A", "0", "*:*:*"})

SHORT_FIELDS: Final = frozenset(_PICKY) - {"tres-per-task"}
"""Of which nothing but that they are there is used: a dependency on a thousand tasks is 28 kB (seen)."""

JOB_FIELDS: Final = (
    "JobID", "State", "Reason", "Partition", "UserName", "Account", "NumCPUs", "MinCpus", "NumNodes", "MaxNodes",
    "EligibleTime", "RestartCnt", "tres-alloc", "NodeList", *_PICKY,
)  # fmt: skip
"""Columns of squeue."""

GROUPS: Final = 500
"""Users, or accounts of a partition, that are told by name: each has some thirty figures. Without enforcement slurmctld
takes any text for an account, and a user could give each job another one."""

NAME_LENGTH: Final = 128
"""Bytes of such a name: Prometheus counts these, and takes nothing of a scrape in which one value is too long."""

OTHERS: Final = "(others)"
"""All the rest together."""

Group = TypeVar("Group", bound=Hashable)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, or the tasks of an array that still wait together."""

    states: frozenset[str]
    reason: str
    partition: str
    user: str
    account: str
    tasks: int
    """Of an array that wait together; else 1."""
    cpus: int
    memory: float
    """MiB that it has, as long as it has nodes."""
    gpus: int
    """That it has, as long as it has nodes."""
    nodes: tuple[str, ...]
    min_nodes: int
    max_nodes: int
    eligible: float | None
    """Seconds since 1970; None where that is not known."""
    restarts: int
    asked: Mapping[str, str]
    """What it waits for, or has, by the names of resources in Slurm (TRES): `cpu`, `mem`, `gres/gpu`."""
    min_cpus: int
    """On each node."""
    is_picky: bool
    """Whether it asks for more than that: certain nodes, a feature, licenses. Nobody but Slurm knows what fits it."""

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
    def is_elastic(self) -> bool:
        """Whether Slurm starts and ends it."""
        return "CLOUD" in self.states

    @property
    def is_up(self) -> bool:
        """Whether its pod is to be there, and has been."""
        return not self.states & {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "DOWN"}

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


def jobs_of(rows: Iterable[Mapping[str, str]], states: Mapping[str, frozenset[str]]) -> list[Job]:
    """Jobs, of which JOB_FIELDS has a row for each task of an array. `states`: by JobID, where squeue shows a flag."""
    first: dict[str, Mapping[str, str]] = {}
    tasks: Counter[str] = Counter()
    for row in rows:
        first.setdefault(row["JobID"], row)
        tasks[row["JobID"]] += 1
    return [_job_of(row, states.get(number, frozenset({row["State"]})), tasks[number]) for number, row in first.items()]


def _job_of(row: Mapping[str, str], states: frozenset[str], tasks: int) -> Job:
    tres, least = tres_of(row["tres-alloc"]), _count(row["NumNodes"])
    return Job(
        states=states,
        reason=row["Reason"],
        # While it waits for several it is counted for the first, as it is only in one for slurmctld.
        partition=row["Partition"].partition(",")[0],
        user=_cut(row["UserName"]),
        account=_cut(row["Account"]),
        tasks=tasks,
        cpus=_count(row["NumCPUs"]),
        memory=mib(tres.get("mem", "0")),
        gpus=int(float(tres.get("gres/gpu", "0"))),
        nodes=expand(row["NodeList"]),
        min_nodes=least,
        max_nodes=max(_count(row["MaxNodes"]), least),
        eligible=float(row["EligibleTime"]) if row["EligibleTime"].isdecimal() else None,
        restarts=_count(row["RestartCnt"]),
        asked=tres,
        min_cpus=_count(row["MinCpus"]),
        is_picky=any(_asks(field, row[field]) for field in _PICKY),
    )


def _cut(name: str) -> str:
    return name.encode(errors="replace")[:NAME_LENGTH].decode(errors="ignore")


def _asks(field: str, value: str) -> bool:
    if field == "tres-per-task":  # `-c 2` is `cpu=2` there
        return any(not part.startswith("cpu") for part in value.split(",") if part not in _NOT_ASKED)
    return value.strip() not in _NOT_ASKED


def _count(text: str) -> int:
    """A number, with the range of `1-2` its first; 0 for what is none."""
    number = text.partition("-")[0]
    return int(number) if number.isdecimal() else 0


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


def largest(groups: Iterable[Group]) -> frozenset[Group]:
    """Those that come up most often, at most GROUPS; of equals the same ones each time."""
    counts = Counter(groups)
    return frozenset(sorted(counts, key=lambda group: (-counts[group], str(group)))[:GROUPS])


def _whole(value: object) -> int:
    """A number that may be unset, in which case it is 0."""
    return int(number_of(value) or 0)
