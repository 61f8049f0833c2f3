"""Slurm's records as the figures need them: jobs out of columns of squeue, nodes out of JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from images.common import slurm_jobs
from images.common.slurm_records import NodeRecord

_HELD: Final = frozenset({"JobHeldAdmin", "JobHeldUser", "job_requeued_in_held_state", "launch_failed_requeued_held"})
"""Reasons; the last two are what squeue has in place of one of the others."""

_FIELDS: Final = (
    "number", "state", "reason", "partitions", "account", "cpus", "min_cpus", "min_nodes", "eligible", "restarts",
    "resources",
)  # fmt: skip

_PICKY: Final = (
    "ReqNodes", "ExcNodes", "Feature", "ClusterFeature", "Reservation", "Licenses", "Dependency", "tres-per-job",
    "tres-per-node", "tres-per-socket", "tres-per-task", "cpus-per-tres", "mem-per-tres", "Contiguous", "ReqSwitch",
    "MinTmpDisk", "SCT", "NTPerCore", "NTPerSocket", "Network", "MCSLabel", "BurstBuffer", "CoreSpec", "HetJobID",
)  # fmt: skip
"""What a job may ask for that is not compared with nodes."""

_NOT_ASKED: Final = frozenset({"", "N/A", "0", "*:*:*"})

SHORT_FIELDS: Final = frozenset(_PICKY) - {"tres-per-task"}
"""Of which nothing but that they are there is used: a dependency on a thousand tasks is 28 kB (seen)."""

COLUMNS: Final = (*slurm_jobs.columns(_FIELDS), *_PICKY)
"""Of squeue."""

NAME_LENGTH: Final = 128
"""Bytes of an account's name: Prometheus counts these, and takes nothing of a scrape in which one is too long."""


@dataclass(frozen=True, kw_only=True)
class Job(slurm_jobs.Job):
    """A job, or the tasks of an array that still wait together. All from one `squeue --array`."""

    waiting_tasks: int = 1
    """Of an array that wait together; else 1."""
    is_picky: bool = False
    """Whether it asks for more than what nodes are compared by: nobody but Slurm knows what fits it."""

    @property
    def is_held(self) -> bool:
        """Whether a person has to let it go."""
        return self.waits and self.reason in _HELD

    @property
    def partition(self) -> str:
        """While it waits for several it is counted for the first, as it is only in one for slurmctld."""
        return self.partitions[0]


def jobs_of(rows: Iterable[Mapping[str, str]]) -> list[Job]:
    """Jobs, of which COLUMNS has a row for each task of an array that waits."""
    first: dict[str, Mapping[str, str]] = {}
    tasks: Counter[str] = Counter()
    for row in rows:
        first.setdefault(row["JobID"], row)
        tasks[row["JobID"]] += 1
    return [_job_of(row, tasks[number]) for number, row in first.items()]


def _job_of(row: Mapping[str, str], tasks: int) -> Job:
    found = slurm_jobs.values(row, _FIELDS)
    found["account"] = row["Account"].encode(errors="replace")[:NAME_LENGTH].decode(errors="ignore")
    return Job(**found, waiting_tasks=tasks, is_picky=any(_asks(field, row[field]) for field in _PICKY))


def _asks(field: str, value: str) -> bool:
    if field == "tres-per-task":  # `-c 2` is `cpu=2` there
        return any(not part.startswith("cpu") for part in value.split(",") if part not in _NOT_ASKED)
    return value.strip() not in _NOT_ASKED


@dataclass(frozen=True, kw_only=True)
class Node(NodeRecord):
    """A node."""

    @property
    def is_elastic_and_up(self) -> bool:
        """Whether Slurm starts and ends it, and its pod is to be there, and has been."""
        return "CLOUD" in self.states and not self.states & {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "DOWN"}
