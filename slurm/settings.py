"""Our defaults for slurm.conf, and how a user's settings win over them."""

from __future__ import annotations

from collections.abc import Mapping

from config.cluster import ClusterConfig
from config.slurm import SettingValue
from slurm.accounting import accounting_settings
from slurm.health import health_settings
from slurm.job_submit import job_submit_settings
from slurm.licenses import license_parameters, license_settings
from slurm.names import CONTROLLER_HOST, SLURMCTLD_PORT, SLURMD_PORT, SRUN_PORTS, STATE_DIR
from slurm.preemption import preemption_settings
from slurm.priority import priority_settings
from slurm.rest import token_settings
from slurm.sizing import default_memory_per_cpu_mib, max_node_count
from slurm.topology import topology_settings

CONFIGLESS = "enable_configless"
"""The one of SlurmctldParameters that no setting can take away: without it no worker would find its configuration."""

_REQUESTS_PER_USER = ("rl_enable", "rl_bucket_size=1000", "rl_refill_rate=200", "rl_table_size=65536", "rl_log_freq=10")
"""One user's endless loop must not keep slurmctld from all others. 1,000 requests at once and then 200 a second: more
than arrays, loops of `sbatch` and 16 connections of a REST client (134 submissions a second, tests/bench) ask for.
Slurm's own 30 and 2 would make a loop of `sbatch` wait after the first second. Beyond it commands wait for a second and
try again. A full table limits nobody who is new: 65,536 users of 24 bytes."""

_CONNECTIONS = "conmgr_max_connections=8192"
"""Connections to slurmctld and to each slurmd that have not said yet what they want. Slurm takes 50 (512 in 26.05) and
lets them be silent for ever: one user's 50 kept everybody from slurmctld, or slurmctld from a node, which it then took
for lost. Each costs a descriptor and some hundred bytes."""


def format_value(value: SettingValue) -> str:
    """A value as slurm.conf has it: YES and NO, lists joined by commas."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, tuple):
        return ",".join(format_value(part) for part in value)
    return str(value)


def effective_settings(config: ClusterConfig) -> dict[str, str]:
    """Every key of slurm.conf but nodes and partitions: our defaults in their order, each replaced by the user's value.

    Slurm's keys do not depend on case, so `defmempercpu` replaces `DefMemPerCPU` too.
    """
    settings = merge(_defaults(config), config.slurm.settings)
    parameters = settings["SlurmctldParameters"].split(",")
    if CONFIGLESS not in parameters:
        settings["SlurmctldParameters"] = ",".join([CONFIGLESS, *parameters])
    return settings


def merge(defaults: Mapping[str, str], settings: Mapping[str, SettingValue]) -> dict[str, str]:
    """`defaults` with `settings` laid over them, keys compared without case."""
    merged = dict(defaults)
    ours = {key.lower(): key for key in defaults}
    for key, value in settings.items():
        merged[ours.get(key.lower(), key)] = format_value(value)
    return merged


def _defaults(config: ClusterConfig) -> dict[str, str]:
    return {
        "ClusterName": config.slurm.cluster_name,
        "SlurmctldHost": CONTROLLER_HOST,
        "SlurmctldPort": str(SLURMCTLD_PORT),
        "SlurmdPort": str(SLURMD_PORT),
        "SrunPortRange": f"{SRUN_PORTS[0]}-{SRUN_PORTS[1]}",
        "SlurmUser": "slurm",
        "AuthType": "auth/munge",
        "CredType": "cred/munge",
        **token_settings(config.rest),
        "StateSaveLocation": STATE_DIR,
        # Of its root file system it can write nothing.
        "SlurmctldPidFile": "/run/slurmstack/slurmctld.pid",
        "SlurmdSpoolDir": "/var/spool/slurmd",
        # Workers fetch this file from slurmctld, and register themselves with the address that they have just now.
        "SlurmctldParameters": ",".join([CONFIGLESS, _CONNECTIONS, *_REQUESTS_PER_USER]),
        "SlurmdParameters": _CONNECTIONS,
        "MaxNodeCount": str(max_node_count(config.worker_nodes)),
        # A worker that comes back after its pod was lost takes jobs again; one that an administrator drained stays
        # drained.
        "ReturnToService": "2",
        **_execution(config),
        **_scheduling(config),
        **accounting_settings(config),
        **priority_settings(config),
        **preemption_settings(config),
        **license_settings(config),
        **job_submit_settings(config),
        **topology_settings(config),
        **_logging(),
    }


def _execution(config: ClusterConfig) -> dict[str, str]:
    return {
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        # Without PMIx every srun fails with MpiDefault=pmix (measured).
        "MpiDefault": "pmix" if config.slurm.has_pmix else "none",
        # A job's groups are looked up on the worker, in the jail's own /etc/group: slurmctld knows declared groups, but
        # none that was made in the jail. AllowGroups of a partition is judged by slurmctld alone, either way.
        "LaunchParameters": "disable_send_gids,use_interactive_step",
        # Limits of a login pod say nothing about the worker pod where the job runs.
        "PropagateResourceLimits": "NONE",
        "DisableRootJobs": "YES",
        **health_settings(config),
        "KillWait": "30",
        "UnkillableStepTimeout": "180",
        "SlurmctldTimeout": "120",
        "SlurmdTimeout": "120",
        "MessageTimeout": "30",
        "TCPTimeout": "5",
    }


def _scheduling(config: ClusterConfig) -> dict[str, str]:
    return {
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "DefMemPerCPU": str(default_memory_per_cpu_mib(config.worker_nodes)),
        "EnforcePartLimits": "ALL",
        "SchedulerType": "sched/backfill",
        "SchedulerParameters": ",".join([*_SCHEDULER_PARAMETERS, *license_parameters(config)]),
        "MaxJobCount": "100000",
        "MaxArraySize": "10001",
        "MinJobAge": "300",
        # Also without GPUs: when the last pool with GPUs leaves, slurmctld would forget which jobs asked for some, and
        # start the waiting ones without (measured).
        "GresTypes": "gpu",
    }


_SCHEDULER_PARAMETERS = (
    "nohold_on_prolog_fail",
    "batch_sched_delay=0",
    "sched_min_interval=0",
    "sched_interval=5",
    "default_queue_depth=1000",
    "bf_interval=5",
    "bf_continue",
    "max_rpc_cnt=150",
)


def _logging() -> dict[str, str]:
    # No SlurmctldLogFile and no SlurmdLogFile: in the foreground both log to stderr, where `kubectl logs` finds it.
    return {
        "SlurmctldDebug": "info",
        "SlurmdDebug": "info",
        "SlurmctldSyslogDebug": "quiet",
        "SlurmdSyslogDebug": "quiet",
        "LogTimeFormat": "iso8601_ms",
    }
