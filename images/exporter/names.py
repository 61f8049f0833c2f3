"""All figures that the exporter gives, by name with their help, and in the text that Prometheus reads."""

from __future__ import annotations

from typing import Final

SLURMS: Final = {
    "slurm_account_jobs_running": "Number of jobs in Running state",
    "slurm_agent_queue_size": "Outgoing RPC retry queue length",
    "slurm_bf_cycle_last": "Last backfill cycle time",
    "slurm_bf_mean_cycle": "Mean backfill cycle time",
    "slurm_jobs_hold": "Number of jobs in Hold state",
    "slurm_jobs_pending": "Number of jobs in Pending state",
    "slurm_jobs_running": "Number of jobs in Running state",
    "slurm_node_cpus": "Total number of cpus in the node",
    "slurm_node_cpus_alloc": "Allocated cpus in the node",
    "slurm_node_gpus": "Total number of GPUs in the node",
    "slurm_node_gpus_alloc": "Number of GPUs currently allocated by jobs on the node",
    "slurm_node_memory_alloc_bytes": "Bytes allocated to jobs in the node",
    "slurm_node_memory_bytes": "Total memory in bytes of the node",
    "slurm_nodes_alloc": "Number of nodes in Allocated state",
    "slurm_nodes_down": "Number of nodes in Down state",
    "slurm_nodes_drain": "Number of nodes with Drain flag",
    "slurm_nodes_drained": "Number of drained nodes",
    "slurm_nodes_draining": "Number of nodes in draining condition (Drain state with active jobs)",
    "slurm_nodes_idle": "Number of nodes in Idle state",
    "slurm_nodes_mixed": "Number of nodes in Mixed state",
    "slurm_partition_jobs_pending": "Number of jobs in Pending state",
    "slurm_sched_mean_cycle": "Mean scheduling cycle time",
    "slurm_schedule_cycle_last": "Last scheduling cycle time",
    "slurm_server_thread_cnt": "Active slurmctld threads count",
    "slurm_slurmdbd_queue_size": "Queued messages to SlurmDBD",
}
"""As a scrape of slurmctld of 26.05 has them (`MetricsType=metrics/openmetrics`): those that alerts and dashboards
ask for, and no more."""

OURS: Final = {
    "slurmstack_exporter_up": "Whether the latest round could read this source (1) or not (0)",
    "slurmstack_slurmctld_up": "Whether slurmctld answers (1) or not (0)",
    "slurmstack_slurmdbd_up": "Whether slurmdbd answers (1) or not (0)",
    "slurmstack_job_wait_seconds_max": "Longest time that a pending job has waited since it was eligible",
    "slurmstack_job_requeues_max": "Most restarts of a pending or running job",
    "slurmstack_node_drained": "1 for each drained node, with the kind of reason",
    "slurmstack_node_down": "1 for each node that is down",
    "slurmstack_elastic_pool_set_aside": "1 for each elastic pool that waits for an administrator: no node came",
    "slurmstack_configuration_refused": "Whether the latest configuration was refused (1) or not (0)",
    "slurmstack_volume_free_bytes": "Bytes of a volume that are free",
    "slurmstack_volume_size_bytes": "Bytes of a volume",
}
"""What Slurm does not tell Prometheus itself."""

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Figures:
    """Figures by name and labels, for Prometheus' text format 0.0.4. All are gauges, as Slurm's own are."""

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
            lines += [f"# HELP {name} {SLURMS.get(name) or OURS[name]}", f"# TYPE {name} gauge"]
            lines += [f"{name}{labels} {_number(value)}" for labels, value in series.items()]
        return "".join(f"{line}\n" for line in lines)


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
