"""What must hold where a pool is elastic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from config.base import span_seconds
from config.cluster import Sections
from config.errors import Problem
from config.sections.scheduling import Partition
from config.sections.slurm import SettingValue, Slurm, folded
from config.sections.workers import WorkerPool

_HIDDEN: Final = "elastic-"
"""What the names of the hidden partitions begin with (slurm/elastic.py)."""

_OURS: Final = (
    "resumeprogram", "suspendprogram", "resumefailprogram", "prologslurmctld", "suspendtime", "suspendtimeout",
    "resumetimeout", "resumerate", "suspendrate", "suspendexcnodes", "suspendexcstates", "suspendexcparts",
)  # fmt: skip


def elastic_problems(sections: Sections) -> Iterator[Problem]:
    """Settings and sections that do not go with elastic pools, and names that are taken."""
    pools: Mapping[str, WorkerPool] = sections.get("worker_nodes")
    elastic = [name for name, pool in pools.items() if pool.is_elastic]
    if not elastic:
        return
    slurm: Slurm | None = sections.get("slurm")
    written = folded(slurm.settings) if slurm is not None else {}
    for key in _OURS:
        if key in written:
            yield _ours(f"slurm.settings.{key}", elastic[0])
    yield from _settings(written, {name: pools[name] for name in elastic})
    partitions: Mapping[str, Partition] = sections.get("partitions")
    for name, partition in partitions.items():
        for key in sorted(folded(partition.settings).keys() & set(_OURS)):
            yield _ours(f"partitions.{name}.settings.{key}", elastic[0])
        if name.removeprefix(_HIDDEN) in elastic and name.startswith(_HIDDEN):
            yield Problem(f"partitions.{name}", "is the name of a partition that we make for the elastic pool")
    if str(written.get("topologyplugin", "")).lower().rpartition("/")[2] == "block":
        message = f"is block, in which nodes of the elastic pool {elastic[0]!r} have no place while they are off; "
        message += "leave it out and set topology.plugin: tree, or give the pool a fixed size"
        yield Problem("slurm.settings.TopologyPlugin", message)


def _ours(where: str, pool: str) -> Problem:
    message = (
        f"is what starts and ends the nodes of the elastic pool {pool!r}; remove it, or give the pool a fixed size"
    )
    return Problem(where, message)


def _settings(written: Mapping[str, SettingValue], pools: Mapping[str, WorkerPool]) -> Iterator[Problem]:
    """Settings that would end what elastic pools wait for, or lift what keeps jobs from a node."""
    longest = max(span_seconds(pool.resume_timeout) for pool in pools.values())
    for key in ("prologepilogtimeout", "prologtimeout"):
        value = str(written.get(key, ""))
        if value.isdecimal() and int(value) < longest:
            message = f"is {value} s, and a job waits for its nodes in PrologSlurmctld for up to {longest} s "
            yield Problem(f"slurm.settings.{key}", message + "(resume_timeout); write no less, or leave it out")
    if "idle_on_node_suspend" in str(written.get("slurmctldparameters", "")).lower():
        message = "has idle_on_node_suspend, which lifts the drains of nodes that are powered down; leave it out"
        yield Problem("slurm.settings.SlurmctldParameters", message)
