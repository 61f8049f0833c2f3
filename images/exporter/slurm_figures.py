"""The figures that slurmctld of 26.05 gives itself (`MetricsType=metrics/openmetrics`), from Slurm's records.

Names and help are in openmetrics.tsv, as a scrape of 26.05 has them, and values are what it would give: memory is in
MiB whatever the name says, an array counts with its tasks while it waits. Where 26.05 is wrong it is not followed:
`slurm_nodes_powering_up` has those that power down there, `slurm_partition_jobs_wait_part_node_limit` jobs of other
reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from images.common.slurm_records import number_of
from images.exporter.records import OTHERS, Job, Node, Partition, largest
from images.exporter.text import Family

_NAMES: Final = Path(__file__).with_name("openmetrics.tsv")

_JOB_STATES: Final = {
    "bootfail": "BOOT_FAIL",
    "cancelled": "CANCELLED",
    "completed": "COMPLETED",
    "completing": "COMPLETING",
    "configuring": "CONFIGURING",
    "deadline": "DEADLINE",
    "expediting": "EXPEDITING",
    "failed": "FAILED",
    "fed_requeued": "REQUEUE_FED",
    "node_failed": "NODE_FAIL",
    "outofmemory": "OUT_OF_MEMORY",
    "powerup_node": "POWER_UP_NODE",
    "preempted": "PREEMPTED",
    "requeued": "REQUEUED",
    "resizing": "RESIZING",
    "revoked": "REVOKED",
    "running": "RUNNING",
    "signaling": "SIGNALING",
    "stageout": "STAGE_OUT",
    "suspended": "SUSPENDED",
    "timeout": "TIMEOUT",
}

_NODE_STATES: Final = {
    "alloc": "ALLOCATED",
    "blocked": "BLOCKED",
    "completing": "COMPLETING",
    "cloud": "CLOUD",
    "down": "DOWN",
    "dyn_future": "DYNAMIC_FUTURE",
    "dyn_normal": "DYNAMIC_NORM",
    "external": "EXTERNAL",
    "fail": "FAIL",
    "future": "FUTURE",
    "idle": "IDLE",
    "invalid_reg": "INVALID_REG",
    "maint": "MAINTENANCE",
    "mixed": "MIXED",
    "noresp": "NOT_RESPONDING",
    "planned": "PLANNED",
    "power_down": "POWER_DOWN",
    "power_up": "POWER_UP",
    "powered_down": "POWERED_DOWN",
    "powering_down": "POWERING_DOWN",
    "powering_up": "POWERING_UP",
    "reboot_issued": "REBOOT_ISSUED",
    "reboot_req": "REBOOT_REQUESTED",
    "resv": "RESERVED",
    "unknown": "UNKNOWN",
}

_IN_PARTITIONS: Final = {"completing": "cg", "noresp": "no_resp", "reboot_req": "reboot_requested"}
"""States of nodes that have another name in the figures of partitions."""

_ONLY_IN_PARTITIONS: Final = ("powering_down",)

_SCHEDULER: Final = {
    "agent_cnt": "agent_count",
    "agent_queue_size": "agent_queue_size",
    "agent_thread_cnt": "agent_thread_count",
    "backfilled_het_jobs": "bf_backfilled_het_jobs",
    "backfilled_jobs": "bf_backfilled_jobs",
    "bf_active": "bf_active",
    "bf_cycle_cnt": "bf_cycle_counter",
    "bf_cycle_last": "bf_cycle_last",
    "bf_cycle_max": "bf_cycle_max",
    "bf_cycle_tot": "bf_cycle_sum",
    "bf_depth_tot": "bf_depth_sum",
    "bf_depth_try_tot": "bf_depth_try_sum",
    "bf_exit_end": "bf_exit.end_job_queue",
    "bf_exit_max_job_start": "bf_exit.bf_max_job_start",
    "bf_exit_max_job_test": "bf_exit.bf_max_job_test",
    "bf_exit_state_changed": "bf_exit.state_changed",
    "bf_exit_table_limit": "bf_exit.bf_node_space_size",
    "bf_exit_timeout": "bf_exit.bf_max_time",
    "bf_last_depth": "bf_last_depth",
    "bf_last_depth_try": "bf_last_depth_try",
    "bf_queue_len": "bf_queue_len",
    "bf_queue_len_tot": "bf_queue_len_sum",
    "bf_table_size": "bf_table_size",
    "bf_table_size_tot": "bf_table_size_sum",
    "bf_when_last_cycle": "bf_when_last_cycle",
    "last_backfilled_jobs": "bf_last_backfilled_jobs",
    "last_proc_req_start": "req_time_start",
    "sched_exit_end": "schedule_exit.end_job_queue",
    "sched_exit_lic": "schedule_exit.licenses",
    "sched_exit_max_depth": "schedule_exit.default_queue_depth",
    "sched_exit_max_job_start": "schedule_exit.max_job_start",
    "sched_exit_rpc_cnt": "schedule_exit.max_rpc_cnt",
    "sched_exit_timeout": "schedule_exit.max_sched_time",
    "sched_stats_timestamp": "req_time",
    "schedule_cycle_cnt": "schedule_cycle_total",
    "schedule_cycle_depth": "schedule_cycle_depth",
    "schedule_cycle_last": "schedule_cycle_last",
    "schedule_cycle_max": "schedule_cycle_max",
    "schedule_cycle_tot": "schedule_cycle_sum",
    "schedule_queue_len": "schedule_queue_length",
    "sdiag_job_states_ts": "job_states_ts",
    "sdiag_jobs_canceled": "jobs_canceled",
    "sdiag_jobs_completed": "jobs_completed",
    "sdiag_jobs_failed": "jobs_failed",
    "sdiag_jobs_pending": "jobs_pending",
    "sdiag_jobs_running": "jobs_running",
    "sdiag_jobs_started": "jobs_started",
    "sdiag_jobs_submitted": "jobs_submitted",
    "sdiag_latency": "gettimeofday_latency",
    "server_thread_cnt": "server_thread_count",
    "slurmdbd_queue_size": "dbd_agent_queue_size",
}
"""Figure -> where `sdiag --json` has it."""

_MEANS: Final = {
    "bf_depth_mean": ("bf_depth_tot", "bf_cycle_cnt"),
    "bf_mean_cycle": ("bf_cycle_tot", "bf_cycle_cnt"),
    "bf_mean_table_sz": ("bf_table_size_tot", "bf_cycle_cnt"),
    "bf_queue_len_mean": ("bf_queue_len_tot", "bf_cycle_cnt"),
    "bf_try_depth_mean": ("bf_depth_try_tot", "bf_cycle_cnt"),
    "sched_mean_cycle": ("schedule_cycle_tot", "schedule_cycle_cnt"),
    "sched_mean_depth_cycle": ("schedule_cycle_depth", "schedule_cycle_cnt"),
}
"""Figure -> what is divided by what; 0 where there was no cycle."""


@cache
def names() -> Mapping[str, str]:
    """Every name that 26.05 gives, and its help."""
    lines = _NAMES.read_text(encoding="utf-8").splitlines()
    return {name: text for name, _, text in (line.partition("\t") for line in lines)}


class Figures:
    """Figures under Slurm's names."""

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}

    def put(self, prefix: str, values: Mapping[str, float], labels: Mapping[str, str] | None = None) -> None:
        """`slurm_<prefix><name>` for each value. Raises KeyError for a name that Slurm does not have."""
        for name, value in values.items():
            full = f"slurm_{prefix}{name}".rstrip("_")
            self.families.setdefault(full, Family(full, names()[full])).set(value, labels)


def put_jobs(figures: Figures, jobs: Sequence[Job]) -> None:
    """All jobs."""
    tasks = sum(job.tasks for job in jobs)
    figures.put("jobs_", {**_of_jobs(jobs), "": tasks})


def put_people(figures: Figures, jobs: Sequence[Job]) -> None:
    """The jobs of each user and each account."""
    for prefix, label, key in (("user", "username", _user), ("account", "account", _account)):
        for who, own in _grouped(jobs, _bounded(jobs, key)).items():
            figures.put(f"{prefix}_jobs_", {**_of_jobs(own), "": len(own)}, {label: who})


def put_nodes(figures: Figures, nodes: Sequence[Node]) -> None:
    """Each node, and all."""
    for node in nodes:
        own = {
            "cpus": node.cpus,
            "cpus_alloc": node.cpus_alloc,
            "cpus_effective": node.cpus_effective,
            "cpus_idle": node.cpus_idle,
            "gpus": node.gpus,
            "gpus_alloc": node.gpus_alloc,
            "memory_alloc_bytes": node.memory_alloc,
            "memory_bytes": node.memory,
            "memory_effective_bytes": node.memory_effective,
            "memory_free_bytes": node.memory_free,
        }
        figures.put("node_", own, {"node": node.name})
    states = _of_nodes(nodes)
    figures.put("nodes_", {"": len(nodes), **{k: v for k, v in states.items() if k not in _ONLY_IN_PARTITIONS}})


def put_partitions(
    figures: Figures, partitions: Sequence[Partition], jobs: Sequence[Job], nodes: Sequence[Node]
) -> None:
    """Each partition."""
    figures.put("partitions", {"": len(partitions)})
    by_partition = _grouped(jobs, lambda job: job.partition)
    for partition in partitions:
        labels = {"partition": partition.name}
        inside = [node for node in nodes if partition.name in node.partitions]
        own = by_partition.get(partition.name, [])
        free = [job for job in own if job.is_pending and not job.is_held]
        pending = [job for job in own if job.is_pending]
        more = {
            "": sum(not job.is_finished or "COMPLETING" in job.states for job in own),
            "wait_part_node_limit": sum(job.is_pending and job.reason == "PartitionNodeLimit" for job in own),
            "max_job_nodes": _most(job.max_nodes for job in pending),
            "min_job_nodes": _most(job.min_nodes for job in pending),
            "max_job_nodes_nohold": _most(job.max_nodes for job in free),
            "min_job_nodes_nohold": _most(job.min_nodes for job in free),
        }
        figures.put("partition_jobs_", {k: v for k, v in _of_jobs(own).items() if k != "nodes_alloc"} | more, labels)
        states = {_IN_PARTITIONS.get(state, state): count for state, count in _of_nodes(inside).items()}
        sums = {
            "": partition.nodes,
            "cpus_alloc": sum(node.cpus_alloc for node in inside),
            "cpus_efctv": sum(node.cpus_effective for node in inside),
            "cpus_idle": sum(node.cpus_idle for node in inside),
            "mem_alloc": sum(node.memory_alloc for node in inside),
            "mem_avail": sum(node.memory_effective for node in inside),
            "mem_free": sum(node.memory_free for node in inside),
            "mem_tot": sum(node.memory for node in inside),
        }
        figures.put("partition_nodes_", states | sums, labels)
        figures.put("partition_", {"cpus": partition.cpus, "gpus": sum(node.gpus for node in inside)}, labels)


def put_scheduler(figures: Figures, statistics: Mapping[str, Any]) -> None:
    """What `sdiag` knows, and nothing of what it does not say."""
    found = {name: _at(statistics, path) for name, path in _SCHEDULER.items()}
    values = {name: value for name, value in found.items() if value is not None}
    known = {name: (values[whole], values[by]) for name, (whole, by) in _MEANS.items() if {whole, by} <= values.keys()}
    means = {name: whole // by if by else 0.0 for name, (whole, by) in known.items()}
    figures.put("", values | means)


def _of_jobs(jobs: Sequence[Job]) -> dict[str, float]:
    values: dict[str, float] = {name: sum(state in job.states for job in jobs) for name, state in _JOB_STATES.items()}
    with_nodes = [job for job in jobs if job.has_nodes]
    return values | {
        "cpus_alloc": sum(job.cpus for job in with_nodes),
        "finished": sum(job.is_finished for job in jobs),
        "gpus_alloc": sum(job.gpus for job in with_nodes),
        "hold": sum(job.tasks for job in jobs if job.is_held),
        "memory_alloc": sum(job.memory for job in with_nodes),
        "nodes_alloc": len({node for job in with_nodes for node in job.nodes}),
        "pending": sum(job.tasks for job in jobs if job.is_pending),
        "started": sum(not job.is_pending for job in jobs),
    }


def _of_nodes(nodes: Sequence[Node]) -> dict[str, int]:
    values = {name: sum(state in node.states for node in nodes) for name, state in _NODE_STATES.items()}
    drain = [node for node in nodes if "DRAIN" in node.states]
    draining = sum(bool(node.states & {"ALLOCATED", "MIXED"}) for node in drain)
    # As there: what has no more jobs is in both.
    return values | {"drain": len(drain) - draining, "drained": len(drain) - draining, "draining": draining}


def _grouped(jobs: Iterable[Job], key: Callable[[Job], str]) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = {}
    for job in jobs:
        found.setdefault(key(job), []).append(job)
    return found


def _bounded(jobs: Iterable[Job], key: Callable[[Job], str]) -> Callable[[Job], str]:
    told = largest(map(key, jobs))
    return lambda job: key(job) if key(job) in told else OTHERS


def _user(job: Job) -> str:
    return job.user


def _account(job: Job) -> str:
    return job.account


def _most(numbers: Iterable[int]) -> int:
    return max(numbers, default=0)


def _at(statistics: Mapping[str, Any], path: str) -> float | None:
    value: Any = statistics
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return float(value) if isinstance(value, bool) else number_of(value) or 0.0
