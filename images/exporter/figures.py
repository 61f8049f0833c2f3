"""The values of all figures, from Slurm's records.

`slurm_*` are what slurmctld of 26.05 gives itself, as far as they are used, with its values: memory is in MiB whatever
the name says, an array counts with its tasks while it waits. `slurmstack_*` are what Slurm does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final

from images.common.health.report import parse
from images.common.slurm_jobs import RUNNING, Job
from images.common.slurm_node import ELASTIC, ROLLS, SET_ASIDE
from images.common.slurm_records import NodeRecord, number_of
from images.exporter.names import Figures

_HELD: Final = frozenset({"JobHeldAdmin", "JobHeldUser", "job_requeued_in_held_state", "launch_failed_requeued_held"})
"""Reasons of jobs that a person has to let go; the last two are what squeue has in place of one of the others."""

MOST_ACCOUNTS: Final = 500
"""Where nothing enforces associations users make accounts up: without a bound these would take all other figures with
them, beyond the `sample_limit` of Prometheus."""

NAME_LENGTH: Final = 64
"""Of an account's name. Without enforcement a user may give any text, and Prometheus takes nothing of a page in which a
value is too long."""

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


_DAEMONS: Final = frozenset({"slurm", "root", "unknown"})
"""Who sets a reason and is no person."""


def put_jobs(figures: Figures, jobs: Sequence[Job]) -> None:
    """All jobs."""
    figures.put("slurm_jobs_hold", sum(job.tasks for job in jobs if _is_held(job)))
    figures.put("slurm_jobs_pending", sum(job.tasks for job in jobs if job.waits))
    figures.put("slurm_jobs_running", sum(job.base_state == RUNNING for job in jobs))


def _is_held(job: Job) -> bool:
    return job.waits and job.reason in _HELD


def put_accounts(figures: Figures, jobs: Sequence[Job]) -> None:
    """The running jobs of each account that has any job."""
    running: Counter[str] = Counter()
    for job in jobs:
        running[job.account[:NAME_LENGTH]] += job.base_state == RUNNING
    for account, count in running.most_common(MOST_ACCOUNTS):
        figures.put("slurm_account_jobs_running", count, account=account)


def put_nodes(figures: Figures, nodes: Sequence[NodeRecord]) -> None:
    """Each node, and all."""
    for node in nodes:
        figures.put("slurm_node_cpus", node.cpus, node=node.name)
        figures.put("slurm_node_cpus_alloc", node.cpus_alloc, node=node.name)
        figures.put("slurm_node_gpus", node.all_gpus, node=node.name)
        figures.put("slurm_node_gpus_alloc", node.gpus_alloc, node=node.name)
        figures.put("slurm_node_memory_alloc_bytes", node.memory_alloc, node=node.name)
        figures.put("slurm_node_memory_bytes", node.memory, node=node.name)
    for name, state in _NODE_STATES.items():
        figures.put(f"slurm_nodes_{name}", sum(state in node.states for node in nodes))
    drain = [node for node in nodes if "DRAIN" in node.states]
    draining = sum(bool(node.states & {"ALLOCATED", "MIXED"}) for node in drain)
    figures.put("slurm_nodes_draining", draining)
    for name in ("drain", "drained"):  # as there: what has no more jobs is in both
        figures.put(f"slurm_nodes_{name}", len(drain) - draining)


def put_partitions(figures: Figures, partitions: Sequence[str], jobs: Sequence[Job]) -> None:
    """Each partition. A job that waits for several is counted for the first, as it is only in one for slurmctld."""
    pending: Counter[str] = Counter()
    for job in jobs:
        pending[job.partitions[0]] += job.tasks if job.waits else 0
    for partition in partitions:
        figures.put("slurm_partition_jobs_pending", pending[partition], partition=partition)


def put_scheduler(figures: Figures, statistics: Mapping[str, Any]) -> None:
    """What `sdiag` knows, and nothing of what it does not say."""
    for name, key in _SCHEDULER.items():
        if key in statistics:
            figures.put(name, number_of(statistics[key]) or 0)


def put_waits(figures: Figures, jobs: Iterable[Job], now: float, *, by_person: bool) -> None:
    """How long jobs wait that could start, by partition and account; those that are held wait for a person.

    `by_person`: with their account.
    """
    longest: dict[tuple[str, str], float] = {}
    for job in jobs:
        if job.waits and not _is_held(job) and job.eligible is not None and job.eligible <= now:
            group = job.partitions[0], job.account[:NAME_LENGTH] if by_person else ""
            longest[group] = max(longest.get(group, 0.0), now - job.eligible)
    for (partition, account), seconds in nlargest(MOST_ACCOUNTS, longest.items(), key=itemgetter(1)):
        figures.put("slurmstack_job_wait_seconds_max", seconds, partition=partition, account=account)


def put_requeues(figures: Figures, jobs: Iterable[Job]) -> None:
    """A job that is started again and again harms nodes or is harmed by them. It is completing between two starts."""
    most: dict[str, int] = {}
    for job in jobs:
        if job.waits or job.base_state in {RUNNING, "COMPLETING"}:
            most[job.partitions[0]] = max(most.get(job.partitions[0], 0), job.restarts)
    for partition, restarts in most.items():
        figures.put("slurmstack_job_requeues_max", restarts, partition=partition)


def put_closed(figures: Figures, nodes: Iterable[NodeRecord]) -> None:
    """Which nodes are drained, and for what, and which are down; Slurm's own figures only count them.

    That a node waits for its new pod is nothing to mend, and what Slurm gave up and ended is started again. An elastic
    pool is set aside where none of its nodes came (images/elastic/starts.py), and waits for a person.
    """
    for node in nodes:
        is_drained = "DRAIN" in node.states
        if is_drained and not node.reason.startswith((ELASTIC, ROLLS)):
            labels = {"reason_kind": _kind_of(node.reason, node.reason_by), "check": parse(node.reason) or ""}
            figures.put("slurmstack_node_drained", 1, node=node.name, **labels)
        if is_drained and node.reason.startswith(SET_ASIDE):
            figures.put("slurmstack_elastic_pool_set_aside", 1, pool=node.name.rpartition("-")[0])
        if "DOWN" in node.states and "POWERED_DOWN" not in node.states:
            figures.put("slurmstack_node_down", 1, node=node.name)


def _kind_of(reason: str, by: str) -> str:
    """`health`, `prolog`, `epilog` (Slurm's own words where one fails), `other` (Slurm or us), else `administrator`."""
    words = reason.lower()
    if parse(reason) is not None:
        return "health"
    if by in _DAEMONS and words.startswith(("prolog", "epilog")):
        return words[:6]
    return "other" if by == "slurm" or words.startswith("slurmstack") else "administrator"
