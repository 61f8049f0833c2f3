"""The figures that Slurm does not have: `slurmstack_*`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Self

from images.common.slurm_node import ELASTIC, NO_CAPACITY, ROLLS, SET_ASIDE
from images.exporter.records import OTHERS, Job, Node, largest, mib
from images.exporter.text import Family
from images.health.reason import parse

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

_HELP: Final = {
    "exporter_up": "Whether the latest round could read this source (1) or not (0)",
    "exporter_collection_seconds": "How long the latest round took to read this source",
    "exporter_collected_timestamp_seconds": "When this source was read the last time",
    "slurmctld_up": "Whether slurmctld answers (1) or not (0)",
    "slurmdbd_up": "Whether slurmdbd answers (1) or not (0)",
    "job_wait_seconds_max": "Longest time that a pending job has waited since it was eligible",
    "jobs_waiting": "Pending jobs that are eligible",
    "jobs_waiting_seconds": "Sum of the times that pending jobs have waited since they were eligible",
    "queue_stuck_jobs": "Jobs pending for Resources or Priority although idle nodes are there that they fit",
    "job_requeues_max": "Most restarts of a pending or running job",
    "node_drained": "1 for each drained node, with who drained it and for what kind of reason",
    "node_down": "1 for each node that is down",
    "elastic_pool_paused": "1 for each elastic pool that waits because there were no machines for it",
    "elastic_pool_set_aside": "Whether it waits for an administrator (1) or tries again by itself (0)",
    "configuration_refused": "Whether the latest configuration was refused (1) or not (0)",
    "configuration_pending": "Whether a configuration waits to be active (1) or not (0)",
    "configuration_applied_timestamp_seconds": "When the configuration in force was put in force",
    "policy_failed": "Whether the latest apply of the policy that has ended failed (1) or not (0)",
    "policy_applied_timestamp_seconds": "When the policy was applied the last time",
    "volume_free_bytes": "Bytes of a volume that are free",
    "volume_size_bytes": "Bytes of a volume",
    "certificate_not_after_timestamp_seconds": "When a certificate ends",
}


class Figures:
    """Figures under our names."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}

    def put(self, figure: str, value: float, **labels: str) -> None:
        """`slurmstack_<figure>`. Raises KeyError for a name that is not in the table."""
        self.families.setdefault(figure, Family(f"slurmstack_{figure}", _HELP[figure])).set(value, labels)


def put_waits(figures: Figures, jobs: Iterable[Job], now: float, *, by_person: bool) -> None:
    """How long jobs wait that could start, by partition and account; those that are held wait for a person.

    `by_person`: with their account.
    """

    def group(job: Job) -> tuple[str, str]:
        return job.partition, job.account if by_person else ""

    waiting = [
        (job, now - job.eligible)
        for job in jobs
        if job.is_pending and not job.is_held and job.eligible is not None and job.eligible <= now
    ]
    told = largest(group(job) for job, _ in waiting)
    waits: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for job, seconds in waiting:
        named = group(job) if group(job) in told else (job.partition, OTHERS)
        waits.setdefault(named, []).append((seconds, job.tasks))
    for (partition, account), found in waits.items():
        labels = {"partition": partition, "account": account}
        figures.put("job_wait_seconds_max", max(seconds for seconds, _ in found), **labels)
        figures.put("jobs_waiting", sum(tasks for _, tasks in found), **labels)
        figures.put("jobs_waiting_seconds", sum(seconds * tasks for seconds, tasks in found), **labels)


def put_requeues(figures: Figures, jobs: Iterable[Job]) -> None:
    """A job that is started again and again harms nodes or is harmed by them."""
    most: dict[str, int] = {}
    for job in jobs:
        if job.is_pending or "RUNNING" in job.states:
            most[job.partition] = max(most.get(job.partition, 0), job.restarts)
    for partition, restarts in most.items():
        figures.put("job_requeues_max", restarts, partition=partition)


def put_stuck(
    figures: Figures, partitions: Iterable[str], jobs: Sequence[Job], nodes: Sequence[Node], now: float
) -> None:
    """A partition without such jobs has 0."""
    # By what they have: nodes of a pool are alike, and 10,000 jobs cannot each look at a thousand of them.
    idle = Counter(_Has.of(node) for node in nodes if "IDLE" in node.states and not node.states & _BUSY)
    stuck = dict.fromkeys(partitions, 0)
    for job in jobs:
        if job.is_pending and job.partition in stuck and _waits_too_long(job, now):
            fitting = sum(count for has, count in idle.items() if job.partition in has.partitions and _fits(job, has))
            stuck[job.partition] += job.tasks if fitting >= max(job.min_nodes, 1) else 0
    for partition, count in stuck.items():
        figures.put("queue_stuck_jobs", count, partition=partition)


def _waits_too_long(job: Job, now: float) -> bool:
    waits_for_turn = job.reason in _TURN and not job.is_picky
    return waits_for_turn and job.eligible is not None and now - job.eligible >= STUCK_SECONDS


class _Has(NamedTuple):
    """What an idle node offers."""

    partitions: tuple[str, ...]
    cpus: int
    memory: int
    gpus: int

    @classmethod
    def of(cls, node: Node) -> Self:
        return cls(node.partitions, node.cpus_effective, node.memory_effective, node.gpus)


def _fits(job: Job, has: _Has) -> bool:
    """Whether an even share of what the job asks for fits an idle node."""
    parts = max(job.min_nodes, 1)
    return (
        max(float(job.asked.get("cpu", "0")) / parts, job.min_cpus) <= has.cpus
        and mib(job.asked.get("mem", "0")) / parts <= has.memory
        and float(job.asked.get("gres/gpu", "0")) / parts <= has.gpus
    )


def put_drained(figures: Figures, nodes: Iterable[Node], *, by_person: bool) -> None:
    """Who has drained what. `by_person`: also people by name. That a node waits for its new pod is nothing to mend."""
    for node in nodes:
        if "DRAIN" in node.states and not node.reason.startswith((ELASTIC, ROLLS)):
            kind, own = _kind_of(node.reason, node.reason_by), parse(node.reason)
            by = node.reason_by or "unknown"
            labels = {"check": own.check if own else "", "by": by if by_person or by in _DAEMONS else ""}
            figures.put("node_drained", 1, node=node.name, reason_kind=kind, **labels)


def put_down(figures: Figures, nodes: Iterable[Node]) -> None:
    """Which nodes are down; Slurm's own figures only count them. What Slurm gave up and ended is started again."""
    for node in nodes:
        if "DOWN" in node.states and "POWERED_DOWN" not in node.states:
            figures.put("node_down", 1, node=node.name)


def put_paused(figures: Figures, nodes: Iterable[Node]) -> None:
    """Elastic pools for which there were no machines (images/elastic/pauses.py): which wait for a person."""
    for name, is_set_aside in sorted(_paused(nodes).items()):
        figures.put("elastic_pool_paused", 1, pool=name)
        figures.put("elastic_pool_set_aside", is_set_aside, pool=name)


def _paused(nodes: Iterable[Node]) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for node in nodes:
        if "DRAIN" in node.states and node.reason.startswith((NO_CAPACITY, SET_ASIDE)):
            pool = node.name.rpartition("-")[0]
            found[pool] = found.get(pool, False) or node.reason.startswith(SET_ASIDE)
    return found


def _kind_of(reason: str, by: str) -> str:
    """`health`, `prolog`, `epilog` (Slurm's own words where one fails), `other` (Slurm or us), else `administrator`."""
    words = reason.lower()
    if parse(reason) is not None:
        return "health"
    if by in _DAEMONS and words.startswith(("prolog", "epilog")):
        return words[:6]
    return "other" if by == "slurm" or words.startswith("slurmstack") else "administrator"
