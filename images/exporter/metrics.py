"""All metrics that the exporter gives: their names, and their values from Slurm's records.

`slurm_*` are what slurmctld of 26.05 gives itself, as far as they are used, with its values: memory is in MiB whatever
the name says, an array counts with its tasks while it waits. `slurmstack_*` are what Slurm does not have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Any, Final

from images.common.health.report import parse
from images.common.slurm_jobs import RUNNING, Job
from images.common.slurm_node import ELASTIC, NO_CAPACITY, NO_START, ROLLS
from images.common.slurm_records import NodeRecord, number_of

_IN_VAIN: Final = re.compile(rf"(?:{NO_CAPACITY}|{NO_START}), (\d+) in vain")
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Metrics:
    """Metrics by name and labels, for Prometheus' text format 0.0.4. All are gauges, as Slurm's own are."""

    def __init__(self) -> None:
        self._series: dict[str, dict[str, float]] = {}
        """Name -> labels, as they are written -> value."""

    def put(self, name: str, value: float, /, **labels: str) -> None:
        """One series. As Slurm does, a label without a value is left out."""
        inside = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items() if text)
        self._series.setdefault(name, {})[f"{{{inside}}}" if inside else ""] = value

    def text(self) -> str:
        """A part of a scrape: names that are in no other part."""
        lines = []
        for name, series in self._series.items():
            lines.append(f"# TYPE {name} gauge")
            lines += [f"{name}{labels} {_number(value)}" for labels, value in series.items()]
        return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)


_HELD: Final = frozenset({"JobHeldAdmin", "JobHeldUser", "job_requeued_in_held_state", "launch_failed_requeued_held"})
"""Reasons of jobs that a person has to let go; the last two are what squeue has in place of one of the others."""

MOST_ACCOUNTS: Final = 500
"""Where nothing enforces associations users make accounts up: without a bound these would take all other metrics with
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
"""Metric -> where `sdiag --json` has it."""

_DAEMONS: Final = frozenset({"slurm", "root", "unknown"})
"""Who sets a reason and is no person."""


def put_jobs(metrics: Metrics, jobs: Sequence[Job], now: float, *, by_person: bool) -> None:
    """All jobs. `by_person`: also by their account."""
    metrics.put("slurm_jobs_hold", sum(job.tasks for job in jobs if _is_held(job)))
    metrics.put("slurm_jobs_pending", sum(job.tasks for job in jobs if job.waits))
    metrics.put("slurm_jobs_running", sum(job.base_state == RUNNING for job in jobs))
    _put_waits(metrics, jobs, now, by_person=by_person)
    _put_requeues(metrics, jobs)
    if by_person:
        _put_accounts(metrics, jobs)


def _is_held(job: Job) -> bool:
    return job.waits and job.reason in _HELD


def _put_accounts(metrics: Metrics, jobs: Sequence[Job]) -> None:
    """The running jobs of each account that has any job."""
    running: Counter[str] = Counter()
    for job in jobs:
        running[job.account[:NAME_LENGTH]] += job.base_state == RUNNING
    for account, count in running.most_common(MOST_ACCOUNTS):
        metrics.put("slurm_account_jobs_running", count, account=account)


def put_nodes(metrics: Metrics, nodes: Sequence[NodeRecord]) -> None:
    """Each node, and all."""
    for node in nodes:
        metrics.put("slurm_node_cpus", node.cpus, node=node.name)
        metrics.put("slurm_node_cpus_alloc", node.cpus_alloc, node=node.name)
        metrics.put("slurm_node_gpus", node.all_gpus, node=node.name)
        metrics.put("slurm_node_gpus_alloc", node.gpus_alloc, node=node.name)
        metrics.put("slurm_node_memory_alloc_bytes", node.memory_alloc, node=node.name)
        metrics.put("slurm_node_memory_bytes", node.memory, node=node.name)
    for name, state in _NODE_STATES.items():
        metrics.put(f"slurm_nodes_{name}", sum(state in node.states for node in nodes))
    drain = [node for node in nodes if "DRAIN" in node.states]
    draining = sum(bool(node.states & {"ALLOCATED", "MIXED"}) for node in drain)
    metrics.put("slurm_nodes_draining", draining)
    for name in ("drain", "drained"):  # as there: what has no more jobs is in both
        metrics.put(f"slurm_nodes_{name}", len(drain) - draining)
    put_closed(metrics, nodes)


def put_partitions(metrics: Metrics, partitions: Sequence[str], jobs: Sequence[Job]) -> None:
    """Each partition. A job that waits for several is counted for the first, as it is only in one for slurmctld."""
    pending: Counter[str] = Counter()
    for job in jobs:
        pending[job.partitions[0]] += job.tasks if job.waits else 0
    for partition in partitions:
        metrics.put("slurm_partition_jobs_pending", pending[partition], partition=partition)


def put_scheduler(metrics: Metrics, statistics: Mapping[str, Any]) -> None:
    """What `sdiag` knows, and nothing of what it does not say."""
    for name, key in _SCHEDULER.items():
        if key in statistics:
            metrics.put(name, number_of(statistics[key]) or 0)


def _put_waits(metrics: Metrics, jobs: Iterable[Job], now: float, *, by_person: bool) -> None:
    """How long jobs wait that could start, by partition and account; those that are held wait for a person."""
    longest: dict[tuple[str, str], float] = {}
    for job in jobs:
        if job.waits and not _is_held(job) and job.eligible is not None and job.eligible <= now:
            group = job.partitions[0], job.account[:NAME_LENGTH] if by_person else ""
            longest[group] = max(longest.get(group, 0.0), now - job.eligible)
    for (partition, account), seconds in nlargest(MOST_ACCOUNTS, longest.items(), key=itemgetter(1)):
        metrics.put("slurmstack_job_wait_seconds_max", seconds, partition=partition, account=account)


def _put_requeues(metrics: Metrics, jobs: Iterable[Job]) -> None:
    """A job that is started again and again harms nodes or is harmed by them. It is completing between two starts."""
    most: dict[str, int] = {}
    for job in jobs:
        if job.waits or job.base_state in {RUNNING, "COMPLETING"}:
            most[job.partitions[0]] = max(most.get(job.partitions[0], 0), job.restarts)
    for partition, restarts in most.items():
        metrics.put("slurmstack_job_requeues_max", restarts, partition=partition)


def put_closed(metrics: Metrics, nodes: Iterable[NodeRecord]) -> None:
    """Which nodes are drained, and for what, and which are down; Slurm's own metrics only count them.

    That a node waits for its new pod is nothing to mend, and what Slurm gave up and ended is started again; how often
    in a row none of an elastic pool came, its reason says (images/elastic/starts.py).
    """
    for node in nodes:
        is_drained = "DRAIN" in node.states
        if is_drained and not node.reason.startswith((ELASTIC, ROLLS)):
            labels = {"reason_kind": _kind_of(node.reason, node.reason_by), "check": parse(node.reason) or ""}
            metrics.put("slurmstack_node_drained", 1, node=node.name, **labels)
        if is_drained and (found := _IN_VAIN.match(node.reason)):
            metrics.put("slurmstack_elastic_pool_failures", int(found[1]), pool=node.name.rpartition("-")[0])
        if node.is_down and not node.is_powered_down:
            metrics.put("slurmstack_node_down", 1, node=node.name)


def _kind_of(reason: str, by: str) -> str:
    """`health`, `prolog`, `epilog` (Slurm's own words where one fails), `other` (Slurm or us), else `administrator`."""
    words = reason.lower()
    if parse(reason) is not None:
        return "health"
    if by in _DAEMONS and words.startswith(("prolog", "epilog")):
        return words[:6]
    return "other" if by == "slurm" or words.startswith("slurmstack") else "administrator"
