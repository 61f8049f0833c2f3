"""The values of all figures, from Slurm's records.

`slurm_*` are what slurmctld of 26.05 gives itself, as far as they are used, with its values: memory is in MiB whatever
the name says, an array counts with its tasks while it waits. `slurmstack_*` are what Slurm does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from images.common.health.report import parse
from images.common.slurm_jobs import RUNNING
from images.common.slurm_node import ELASTIC, NO_CAPACITY, ROLLS, SET_ASIDE
from images.common.slurm_records import number_of
from images.exporter.names import Figures
from images.exporter.sources import Job, Node

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


STUCK_SECONDS: Final = 60.0
"""A job that waits for its turn, while what it asks for is idle, is stuck after this. The scheduler looks at all jobs
every few seconds, and on a busy controller within a minute."""

_TURN: Final = frozenset({"Resources", "Priority"})

_BUSY: Final = frozenset(
    {
        "DRAIN", "COMPLETING", "NOT_RESPONDING", "FAIL", "MAINTENANCE", "RESERVED", "PLANNED", "POWERED_DOWN",
        "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_UP", "REBOOT_ISSUED", "REBOOT_REQUESTED", "BLOCKED",
        "INVALID_REG",
    }
)  # fmt: skip
"""An idle node with one of these takes no job now, or is kept for one (PLANNED)."""

_DAEMONS: Final = frozenset({"slurm", "root", "unknown"})
"""Who sets a reason and is no person."""


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


def put_waits(figures: Figures, jobs: Iterable[Job], now: float, *, by_person: bool) -> None:
    """How long jobs wait that could start, by partition and account; those that are held wait for a person.

    `by_person`: with their account.
    """
    waiting = [
        (job.partition, job.account if by_person else "", now - job.eligible, job.waiting_tasks)
        for job in jobs
        if job.waits and not job.is_held and job.eligible is not None and job.eligible <= now
    ]
    named = largest(Counter((partition, account) for partition, account, _, _ in waiting))
    waits: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for partition, account, seconds, tasks in waiting:
        group = (partition, account if (partition, account) in named else OTHERS)
        waits.setdefault(group, []).append((seconds, tasks))
    for (partition, account), found in waits.items():
        labels = {"partition": partition, "account": account}
        figures.put("slurmstack_job_wait_seconds_max", max(seconds for seconds, _ in found), **labels)
        figures.put("slurmstack_jobs_waiting", sum(tasks for _, tasks in found), **labels)
        figures.put("slurmstack_jobs_waiting_seconds", sum(seconds * tasks for seconds, tasks in found), **labels)


def put_requeues(figures: Figures, jobs: Iterable[Job]) -> None:
    """A job that is started again and again harms nodes or is harmed by them. It is completing between two starts."""
    most: dict[str, int] = {}
    for job in jobs:
        if job.waits or job.base_state in {RUNNING, "COMPLETING"}:
            most[job.partition] = max(most.get(job.partition, 0), job.restarts)
    for partition, restarts in most.items():
        figures.put("slurmstack_job_requeues_max", restarts, partition=partition)


def put_stuck(
    figures: Figures, partitions: Iterable[str], jobs: Sequence[Job], nodes: Sequence[Node], now: float
) -> None:
    """A partition without such jobs has 0."""
    # By what they have: nodes of a pool are alike, and 10,000 jobs cannot each look at a thousand of them.
    idle = Counter(
        _Has(node.partitions, node.cpus_effective, node.memory_effective, node.all_gpus)
        for node in nodes
        if "IDLE" in node.states and not node.states & _BUSY
    )
    stuck = dict.fromkeys(partitions, 0)
    for job in jobs:
        if job.waits and job.partition in stuck and _waits_too_long(job, now):
            fitting = sum(count for has, count in idle.items() if job.partition in has.partitions and _fits(job, has))
            stuck[job.partition] += job.waiting_tasks if fitting >= max(job.min_nodes, 1) else 0
    for partition, count in stuck.items():
        figures.put("slurmstack_queue_stuck_jobs", count, partition=partition)


def _waits_too_long(job: Job, now: float) -> bool:
    waits_for_turn = job.reason in _TURN and not job.is_picky
    return waits_for_turn and job.eligible is not None and now - job.eligible >= STUCK_SECONDS


class _Has(NamedTuple):
    """What an idle node offers."""

    partitions: tuple[str, ...]
    cpus: int
    memory: int
    gpus: int


def _fits(job: Job, has: _Has) -> bool:
    """Whether an even share of what the job asks for fits an idle node."""
    cpus, memory, gpus = (job.resources.get(name, 0) / max(job.min_nodes, 1) for name in ("cpu", "mem", "gres/gpu"))
    return max(cpus, job.min_cpus) <= has.cpus and memory <= has.memory and gpus <= has.gpus


def put_drained(figures: Figures, nodes: Iterable[Node], *, by_person: bool) -> None:
    """Who has drained what. `by_person`: also people by name. That a node waits for its new pod is nothing to mend."""
    for node in nodes:
        if "DRAIN" in node.states and not node.reason.startswith((ELASTIC, ROLLS)):
            by = node.reason_by or "unknown"
            labels = {"reason_kind": _kind_of(node.reason, node.reason_by), "check": parse(node.reason) or ""}
            by = by if by_person or by in _DAEMONS else ""
            figures.put("slurmstack_node_drained", 1, node=node.name, **labels, by=by)


def put_down(figures: Figures, nodes: Iterable[Node]) -> None:
    """Which nodes are down; Slurm's own figures only count them. What Slurm gave up and ended is started again."""
    for node in nodes:
        if "DOWN" in node.states and "POWERED_DOWN" not in node.states:
            figures.put("slurmstack_node_down", 1, node=node.name)


def put_paused(figures: Figures, nodes: Iterable[Node]) -> None:
    """Elastic pools for which there were no machines (images/elastic/bounds.py): which wait for a person."""
    paused: dict[str, bool] = {}
    for node in nodes:
        if "DRAIN" in node.states and node.reason.startswith((NO_CAPACITY, SET_ASIDE)):
            pool = node.name.rpartition("-")[0]
            paused[pool] = paused.get(pool, False) or node.reason.startswith(SET_ASIDE)
    for pool, is_set_aside in paused.items():
        figures.put("slurmstack_elastic_pool_paused", 1, pool=pool)
        figures.put("slurmstack_elastic_pool_set_aside", is_set_aside, pool=pool)


def _kind_of(reason: str, by: str) -> str:
    """`health`, `prolog`, `epilog` (Slurm's own words where one fails), `other` (Slurm or us), else `administrator`."""
    words = reason.lower()
    if parse(reason) is not None:
        return "health"
    if by in _DAEMONS and words.startswith(("prolog", "epilog")):
        return words[:6]
    return "other" if by == "slurm" or words.startswith("slurmstack") else "administrator"
