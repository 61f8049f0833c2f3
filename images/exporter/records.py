"""Slurm's records as the figures need them.

Nodes and partitions are out of `--json` (24.11: data_parser v0.0.42, 26.05: v0.0.45), jobs out of columns of squeue.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from images.common.slurm_records import number_of, states_of, text_of

RUNNING: Final = "RUNNING"
PENDING: Final = "PENDING"

_MORE_STATES: Final = {
    **dict.fromkeys(("CONFIGURING", "POWER_UP_NODE", "RECONFIG_FAIL", "RESIZING", "SIGNALING", "STOPPED"), RUNNING),
    **dict.fromkeys(
        ("EXPEDITING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"), PENDING
    ),
}
"""squeue shows one of these in place of the state that a job has besides (src/common, `job_state_string`)."""

_HELD: Final = frozenset({"JobHeldAdmin", "JobHeldUser", "job_requeued_in_held_state", "launch_failed_requeued_held"})
"""Reasons; the last two are what squeue has in place of one of the others."""

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
    "JobID", "State", "Reason", "Partition", "Account", "NumCPUs", "MinCpus", "NumNodes", "EligibleTime", "RestartCnt",
    "tres-alloc", *_PICKY,
)  # fmt: skip
"""Columns of squeue."""

NAME_LENGTH: Final = 128
"""Bytes of an account's name: Prometheus counts these, and takes nothing of a scrape in which one is too long."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, or the tasks of an array that still wait together."""

    state: str
    reason: str
    partition: str
    account: str
    tasks: int
    """Of an array that wait together; else 1."""
    cpus: int
    min_cpus: int
    """On each node."""
    min_nodes: int
    eligible: float | None
    """Seconds since 1970; None where that is not known."""
    restarts: int
    asked: Mapping[str, float]
    """What it waits for, or has, by the names of resources in Slurm (TRES): `cpu`, `mem` in MiB, `gres/gpu`."""
    is_picky: bool
    """Whether it asks for more than that: certain nodes, a feature, licenses. Nobody but Slurm knows what fits it."""

    @property
    def is_pending(self) -> bool:
        """Whether it waits in the queue."""
        return self.state == PENDING

    @property
    def is_held(self) -> bool:
        """Whether a person has to let it go."""
        return self.is_pending and self.reason in _HELD


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
    reason: str
    reason_by: str
    """User that set the reason."""

    @property
    def is_elastic_and_up(self) -> bool:
        """Whether Slurm starts and ends it, and its pod is to be there, and has been."""
        return "CLOUD" in self.states and not self.states & {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "DOWN"}


def jobs_of(rows: Iterable[Mapping[str, str]]) -> list[Job]:
    """Jobs, of which JOB_FIELDS has a row for each task of an array that waits."""
    first: dict[str, Mapping[str, str]] = {}
    tasks: Counter[str] = Counter()
    for row in rows:
        first.setdefault(row["JobID"], row)
        tasks[row["JobID"]] += 1
    return [_job_of(row, tasks[number]) for number, row in first.items()]


def _job_of(row: Mapping[str, str], tasks: int) -> Job:
    return Job(
        state=_MORE_STATES.get(row["State"], row["State"]),
        reason=row["Reason"],
        # While it waits for several it is counted for the first, as it is only in one for slurmctld.
        partition=row["Partition"].partition(",")[0],
        account=row["Account"].encode(errors="replace")[:NAME_LENGTH].decode(errors="ignore"),
        tasks=tasks,
        cpus=_count(row["NumCPUs"]),
        min_cpus=_count(row["MinCpus"]),
        min_nodes=_count(row["NumNodes"]),
        eligible=float(row["EligibleTime"]) if row["EligibleTime"].isdecimal() else None,
        restarts=_count(row["RestartCnt"]),
        asked=tres_of(row["tres-alloc"]),
        is_picky=any(_asks(field, row[field]) for field in _PICKY),
    )


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
    cpus, memory, partitions = _whole(entry.get("cpus")), _whole(entry.get("real_memory")), entry.get("partitions")
    return Node(
        name=text_of(entry.get("name")),
        states=states_of(entry.get("state")),
        partitions=tuple(partitions) if isinstance(partitions, list) else (),
        cpus=cpus,
        cpus_effective=_whole(entry.get("effective_cpus", cpus)),
        cpus_alloc=_whole(entry.get("alloc_cpus")),
        gpus=int(tres_of(text_of(entry.get("tres"))).get("gres/gpu", 0)),
        gpus_alloc=sum(int(number) for number in _GPUS.findall(text_of(entry.get("gres_used")))),
        memory=memory,
        memory_alloc=_whole(entry.get("alloc_memory")),
        memory_effective=memory - _whole(entry.get("specialized_memory")),
        reason=text_of(entry.get("reason")),
        reason_by=text_of(entry.get("reason_set_by_user")),
    )


def _whole(value: object) -> int:
    """A number that may be unset, in which case it is 0."""
    return int(number_of(value) or 0)


def tres_of(text: str) -> dict[str, float]:
    """`cpu=2,mem=1.50G,gres/gpu:h100=1` by name, memory in MiB, also where it has no unit."""
    return {key: _amount(value) for key, _, value in (part.partition("=") for part in text.split(",")) if value}


def _amount(text: str) -> float:
    """math.inf for what is no number: Slurm writes `1?` where it has no unit for so much."""
    unit = text[-1:].upper()
    number, factor = (text[:-1], _UNITS[unit]) if unit in _UNITS else (text, 1)
    try:
        found = float(number) * factor
    except ValueError:
        return math.inf
    return math.inf if math.isnan(found) else found
