"""Names of the figures that the exporter gives: alerts, dashboards and docs/metrics.md ask for these."""

from __future__ import annotations

from typing import Final

SLURMS: Final = frozenset((
    "slurm_account_jobs_running", "slurm_agent_queue_size", "slurm_bf_cycle_last", "slurm_bf_mean_cycle",
    "slurm_jobs_hold", "slurm_jobs_pending", "slurm_jobs_running", "slurm_node_cpus", "slurm_node_cpus_alloc",
    "slurm_node_gpus", "slurm_node_gpus_alloc", "slurm_node_memory_alloc_bytes", "slurm_node_memory_bytes",
    "slurm_nodes_alloc", "slurm_nodes_down", "slurm_nodes_drain", "slurm_nodes_drained", "slurm_nodes_draining",
    "slurm_nodes_idle", "slurm_nodes_mixed", "slurm_partition_jobs_pending", "slurm_sched_mean_cycle",
    "slurm_schedule_cycle_last", "slurm_server_thread_cnt", "slurm_slurmdbd_queue_size",
))  # fmt: skip
"""As a scrape of slurmctld of 26.05 has them (`MetricsType=metrics/openmetrics`): those that alerts and dashboards
ask for, and no more. docs/metrics.md says what each means."""

OURS: Final = frozenset((
    "slurmstack_configuration_refused", "slurmstack_elastic_pool_failures", "slurmstack_exporter_up",
    "slurmstack_job_requeues_max", "slurmstack_job_wait_seconds_max", "slurmstack_node_down",
    "slurmstack_node_drained", "slurmstack_slurmctld_up", "slurmstack_slurmdbd_up", "slurmstack_volume_free_bytes",
    "slurmstack_volume_size_bytes",
))  # fmt: skip
"""What Slurm does not tell Prometheus itself."""
