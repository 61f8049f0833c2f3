"""The dashboards: what one is made of, and the three for the cluster, its nodes and its jobs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["line", "stack", "number", "state", "table"]
"""line and stack: over time, side by side or on each other. number: the latest. state: 1 and 0 as words. table: the
latest, a row a series."""

Needs = Literal["accounting", "gpus", "dcgm", "kube_state", "cgroups"]
"""What a cluster must have, or its Prometheus must read, or else a panel is empty."""

NEEDS: Final[dict[Needs, str]] = {
    "accounting": "Only with accounting.",
    "gpus": "Only with GPUs.",
    "dcgm": "From NVIDIA's DCGM exporter, which this Prometheus has to read, too.",
    "kube_state": "From kube-state-metrics: of monitoring.kube_state, or one that this Prometheus reads besides.",
    "cgroups": "From workers whose machines have version 2 of cgroups.",
}
"""The same in words, for who looks at the panel."""

RATE: Final = "$__rate_interval"
"""The range of a rate, which Grafana puts in."""


@dataclass(frozen=True)
class Query:
    """One question to Prometheus."""

    expression: str
    """PromQL, perhaps with variables of the dashboard (`$node`) and `RATE`."""
    legend: str = ""
    """Name of each series, with its labels as `{{label}}`."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture."""

    title: str
    queries: tuple[Query, ...]
    kind: Kind = "line"
    unit: str = "short"
    """As Grafana calls it."""
    width: int = 8
    """Of 24 columns."""
    needs: Needs | None = None
    explained: str = ""
    """What is good to know, also when it is empty although all is well."""


@dataclass(frozen=True, kw_only=True)
class Board:
    """One dashboard."""

    name: str
    """In file names and in its address."""
    title: str
    rows: dict[str, tuple[Panel, ...]]
    """Heading -> the panels below it."""
    variables: dict[str, str] = field(default_factory=dict)
    """Name of a variable -> metric and label whose values it has: `slurm_node_cpus, node`."""

    def panels(self) -> Iterator[Panel]:
        """All, from top to bottom."""
        for panels in self.rows.values():
            yield from panels


def _number(
    title: str, expression: str, kind: Kind = "number", unit: str = "short", needs: Needs | None = None
) -> Panel:
    return Panel(title=title, queries=(Query(expression),), kind=kind, unit=unit, width=4, needs=needs)


def _plot(
    title: str, expression: str, legend: str, unit: str = "short", *, needs: Needs | None = None, explained: str = ""
) -> Panel:
    return Panel(title=title, queries=(Query(expression, legend),), unit=unit, needs=needs, explained=explained)


def _plots(title: str, *, unit: str = "short", **expressions: str) -> Panel:
    """Several in one; the name of each is its legend, with `_` for spaces."""
    queries = tuple(Query(expression, name.replace("_", " ")) for name, expression in expressions.items())
    return Panel(title=title, queries=queries, unit=unit)


def _table(title: str, expression: str, explained: str, *, needs: Needs | None = None) -> Panel:
    return Panel(title=title, queries=(Query(expression),), kind="table", width=24, explained=explained, needs=needs)


def _by_pool(metric: str) -> str:
    """The name of a node is that of its pool, and a number."""
    return f'sum by (pool) (label_replace({metric}, "pool", "$1", "node", "(.+)-[0-9]+"))'


_CONTROLLERS: Final = (
    _number("slurmctld", "slurmstack_slurmctld_up", "state"),
    _number("slurmdbd", "slurmstack_slurmdbd_up", "state", needs="accounting"),
    _number("Jobs running", "slurm_jobs_running"),
    _number("Jobs pending", "slurm_jobs_pending"),
    _number("Nodes down or drained", "slurm_nodes_down + slurm_nodes_drain + slurm_nodes_draining"),
    _number(
        "State volume used",
        '1 - slurmstack_volume_free_bytes{volume="state"} / slurmstack_volume_size_bytes{volume="state"}',
        unit="percentunit",
    ),
)

_POOLS: Final = (
    _plot(
        "CPUs in use", f"{_by_pool('slurm_node_cpus_alloc')} / {_by_pool('slurm_node_cpus')}", "{{pool}}", "percentunit"
    ),
    _plot(
        "GPUs in use", f"{_by_pool('slurm_node_gpus_alloc')} / ({_by_pool('slurm_node_gpus')} > 0)", "{{pool}}",
        "percentunit", needs="gpus",
    ),
    _plots(
        "Nodes by state", allocated="slurm_nodes_alloc", mixed="slurm_nodes_mixed", idle="slurm_nodes_idle",
        draining="slurm_nodes_draining", drained="slurm_nodes_drained", down="slurm_nodes_down",
    ),
)  # fmt: skip

_QUEUE: Final = (
    _plots("Jobs", running="slurm_jobs_running", pending="slurm_jobs_pending", held="slurm_jobs_hold"),
    _plot("Pending by partition", "slurm_partition_jobs_pending", "{{partition}}"),
    _plot(
        "Running by account", "topk(10, slurm_account_jobs_running)", "{{account}}",
        explained="The ten with most. Empty with PrivateData, and without a job.",
    ),
    _plot(
        "Most restarts of a job", "slurmstack_job_requeues_max", "{{partition}}",
        explained="Of those that are pending or running; empty without. Runbook: SlurmJobRequeueLoop.",
    ),
)  # fmt: skip

_WAITING: Final = (
    _plot(
        "Longest, by partition", "max by (partition) (slurmstack_job_wait_seconds_max)", "{{partition}}", "s",
        explained="Since the job was eligible to run; without those that are held. Empty if none waits.",
    ),
    _plot(
        "Longest, by account", "topk(10, max by (account) (slurmstack_job_wait_seconds_max))", "{{account}}", "s",
        explained="The ten with most. Empty if none waits; without names with PrivateData.",
    ),
)  # fmt: skip

_SCHEDULER: Final = (
    _plots("Main cycle", unit="µs", last="slurm_schedule_cycle_last", mean="slurm_sched_mean_cycle"),
    _plots("Backfill", unit="µs", last="slurm_bf_cycle_last", mean="slurm_bf_mean_cycle"),
    _plots(
        "Waits in slurmctld", threads="slurm_server_thread_cnt", messages_to_nodes="slurm_agent_queue_size",
        records_for_slurmdbd="slurm_slurmdbd_queue_size",
    ),
)  # fmt: skip

_KUBERNETES: Final = (
    _plot("Pods by phase", "sum by (phase) (kube_pod_status_phase)", "{{phase}}", needs="kube_state"),
    Panel(
        title="Pods that are wanted and not ready",
        queries=(
            Query("kube_statefulset_replicas - kube_statefulset_status_replicas_ready", "{{statefulset}}"),
            Query("kube_deployment_spec_replicas - kube_deployment_status_replicas_ready", "{{deployment}}"),
        ),
        needs="kube_state",
    ),
    _plot(
        "Restarts in an hour",
        "topk(10, sum by (pod, container) (increase(kube_pod_container_status_restarts_total[1h])) "
        "or sum by (pod, container) (increase(kube_pod_init_container_status_restarts_total[1h])))",
        "{{pod}} {{container}}", needs="kube_state", explained="The ten with most. Runbook: ContainerRestartLoop.",
    ),
    _plot(
        "Volumes that are not there", 'sum(kube_persistentvolumeclaim_status_phase{phase!="Bound"})', "claims",
        needs="kube_state", explained="Runbook: ClaimNotBound.",
    ),
)  # fmt: skip

CLUSTER: Final = Board(
    name="cluster",
    title="Slurm cluster",
    rows={
        "Controllers": _CONTROLLERS,
        "Pools": _POOLS,
        "Queue": _QUEUE,
        "Waiting": _WAITING,
        "Scheduler": _SCHEDULER,
        "Kubernetes": _KUBERNETES,
    },
)

_NODES: Final = (
    _table(
        "Drained",
        'slurmstack_node_drained{node=~"$node"} == 1',
        "reason_kind: for what kind of reason; `sinfo -R` has it in full. Empty if none is.",
    ),
    _plot(
        "CPUs in use", 'slurm_node_cpus_alloc{node=~"$node"} / slurm_node_cpus{node=~"$node"}', "{{node}}",
        "percentunit",
    ),
    _plot(
        "Memory given to jobs",
        'slurm_node_memory_alloc_bytes{node=~"$node"} / slurm_node_memory_bytes{node=~"$node"}', "{{node}}",
        "percentunit",
    ),
    _plot("GPUs in use", 'slurm_node_gpus_alloc{node=~"$node"}', "{{node}}", needs="gpus"),
)  # fmt: skip

_OF_NODE = '{instance=~"$node:.*"}'
_STATUS = 'sum by (check) (slurmstack_health_check_status{{status="{}",instance=~"$node:.*"}})'

_HEALTH: Final = (
    _plot("Nodes that fail, by check", _STATUS.format("fail"), "{{check}}"),
    _plot("Nodes with a warning, by check", _STATUS.format("warn"), "{{check}}"),
    _plot(
        "Since the last run", f"time() - slurmstack_health_last_run_timestamp_seconds{_OF_NODE}", "{{instance}}", "s"
    ),
    _plot(
        "Shared file system: slowest operation",
        f"max by (instance) (slurmstack_health_filesystem_seconds{_OF_NODE})", "{{instance}}", "s",
        explained="With a small file in the jail.",
    ),
    _plot(
        "File systems used", f"max by (instance, path) (slurmstack_health_disk_used_ratio{_OF_NODE})",
        "{{instance}} {{path}}", "percentunit",
    ),
    _plot(
        "Time of checks", f"max by (check) (slurmstack_health_check_seconds{_OF_NODE})", "{{check}}", "s",
        explained="On the node where each takes longest.",
    ),
)  # fmt: skip

_GPU = "{{Hostname}} {{gpu}}"

_GPUS: Final = (
    _plot("Use", "DCGM_FI_DEV_GPU_UTIL", _GPU, "percent", needs="dcgm"),
    _plot("Memory used", "DCGM_FI_DEV_FB_USED", _GPU, "mbytes", needs="dcgm"),
    _plot("Temperature", "DCGM_FI_DEV_GPU_TEMP", _GPU, "celsius", needs="dcgm"),
)

NODES: Final = Board(
    name="nodes",
    title="Slurm nodes and their health",
    variables={"node": "slurm_node_cpus, node"},
    rows={
        "Nodes": _NODES,
        "Health checks": _HEALTH,
        "GPUs": _GPUS,
    },
)

_OF_JOB = '{jobid=~"$job"}'
_CPUS_USED: Final = f"sum by (jobid) (rate(cgroup_cpu_total_seconds{_OF_JOB}[{RATE}]))"
_SHARE: Final = f"{_CPUS_USED} / sum by (jobid) (cgroup_cpus{_OF_JOB})"
_FULL: Final = f"cgroup_memory_rss_bytes{_OF_JOB} / (cgroup_memory_total_bytes{_OF_JOB} > 0)"


def _job(title: str, expression: str, legend: str, unit: str = "short") -> Panel:
    return _plot(title, expression, legend, unit, needs="cgroups")


_USED: Final = (
    _job("CPUs used", _CPUS_USED, "{{jobid}}"),
    _job("Used of the CPUs that it has", _SHARE, "{{jobid}}", "percentunit"),
    _job("Jobs that use less than a tenth of their CPUs", f"count({_SHARE} < 0.1) or vector(0)", "jobs"),
    _job("Memory", f"sum by (jobid) (cgroup_memory_rss_bytes{_OF_JOB})", "{{jobid}}", "bytes"),
    _job("Memory: used of its limit, on the fullest node", f"max by (jobid) ({_FULL})", "{{jobid}}", "percentunit"),
    _job("Memory limit was hit", f"sum by (jobid) (cgroup_memory_fail_count{_OF_JOB})", "{{jobid}}"),
)

JOBS: Final = Board(
    name="jobs",
    title="Slurm jobs",
    variables={"job": "cgroup_uid, jobid"},
    rows={
        "What running jobs use": _USED,
        "Where they run": (
            _table("Jobs", f"cgroup_uid{_OF_JOB}", "Value: number of the user. instance: the node.", needs="cgroups"),
        ),
    },
)

BOARDS: Final = (CLUSTER, NODES, JOBS)
