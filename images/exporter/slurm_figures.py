"""The figures that slurmctld of 26.05 gives itself, as far as they are used, from Slurm's records.

Values are what it would give: memory is in MiB whatever the name says, an array counts with its tasks while it waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, TypeVar

from images.common.slurm_jobs import RUNNING
from images.common.slurm_records import number_of
from images.exporter.records import Job, Node
from images.exporter.text import Figures

GROUPS: Final = 500
"""Accounts, or accounts of a partition, that are named. Without enforcement slurmctld takes any text for an account,
and a user could give each job another one."""

OTHERS: Final = "(others)"
"""All the rest together."""

_HAS_CPUS: Final = frozenset({RUNNING, "SUSPENDED"})

_NODE_STATES: Final = {"alloc": "ALLOCATED", "down": "DOWN", "idle": "IDLE", "mixed": "MIXED"}

_SCHEDULER: Final = {
    "slurm_agent_queue_size": "agent_queue_size",
    "slurm_bf_cycle_last": "bf_cycle_last",
    "slurm_bf_mean_cycle": "bf_cycle_mean",
    "slurm_sched_mean_cycle": "schedule_cycle_mean",
    "slurm_schedule_cycle_last": "schedule_cycle_last",
    "slurm_server_thread_cnt": "server_thread_count",
    "slurm_slurmdbd_queue_size": "dbd_agent_queue_size",
}
"""Figure -> where `sdiag --json` has it."""


Group = TypeVar("Group", bound=Hashable)


def put_jobs(figures: Figures, jobs: Sequence[Job]) -> None:
    """All jobs."""
    with_cpus = [job for job in jobs if job.base_state in _HAS_CPUS]
    figures.put("slurm_jobs_cpus_alloc", sum(job.cpus for job in with_cpus))
    figures.put("slurm_jobs_gpus_alloc", sum(job.resources.get("gres/gpu", 0) for job in with_cpus))
    figures.put("slurm_jobs_hold", sum(job.waiting_tasks for job in jobs if job.is_held))
    figures.put("slurm_jobs_pending", sum(job.waiting_tasks for job in jobs if job.waits))
    figures.put("slurm_jobs_running", sum(job.base_state == RUNNING for job in jobs))


def put_accounts(figures: Figures, jobs: Sequence[Job]) -> None:
    """The running jobs of each account that has any job."""
    named = largest(Counter(job.account for job in jobs))
    running: Counter[str] = Counter()
    for job in jobs:
        running[job.account if job.account in named else OTHERS] += job.base_state == RUNNING
    for account, count in running.items():
        figures.put("slurm_account_jobs_running", count, account=account)


def put_nodes(figures: Figures, nodes: Sequence[Node]) -> None:
    """Each node, and all."""
    for node in nodes:
        figures.put("slurm_node_cpus", node.cpus, node=node.name)
        figures.put("slurm_node_cpus_alloc", node.cpus_alloc, node=node.name)
        figures.put("slurm_node_gpus", node.all_gpus, node=node.name)
        figures.put("slurm_node_gpus_alloc", node.gpus_alloc, node=node.name)
        figures.put("slurm_node_memory_alloc_bytes", node.memory_alloc, node=node.name)
        figures.put("slurm_node_memory_bytes", node.memory, node=node.name)
    figures.put("slurm_nodes", len(nodes))
    for name, state in _NODE_STATES.items():
        figures.put(f"slurm_nodes_{name}", sum(state in node.states for node in nodes))
    drain = [node for node in nodes if "DRAIN" in node.states]
    draining = sum(bool(node.states & {"ALLOCATED", "MIXED"}) for node in drain)
    figures.put("slurm_nodes_draining", draining)
    for name in ("drain", "drained"):  # as there: what has no more jobs is in both
        figures.put(f"slurm_nodes_{name}", len(drain) - draining)


def put_partitions(figures: Figures, partitions: Sequence[str], jobs: Sequence[Job]) -> None:
    """Each partition."""
    pending: Counter[str] = Counter()
    for job in jobs:
        pending[job.partition] += job.waiting_tasks if job.waits else 0
    for partition in partitions:
        figures.put("slurm_partition_jobs_pending", pending[partition], partition=partition)


def put_scheduler(figures: Figures, statistics: Mapping[str, Any]) -> None:
    """What `sdiag` knows, and nothing of what it does not say."""
    for name, key in _SCHEDULER.items():
        if key in statistics:
            figures.put(name, number_of(statistics[key]) or 0)


def largest(counts: Counter[Group]) -> frozenset[Group]:
    """Those that come up most often, at most GROUPS; of equals the same ones each time."""
    return frozenset(sorted(counts, key=lambda group: (-counts[group], str(group)))[:GROUPS])
