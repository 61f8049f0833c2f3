"""The least configuration with which Slurm runs in a sandbox."""

from __future__ import annotations

from config.cluster import ClusterConfig
from slurm.conf import effective_settings

TOKENS = ("AuthAltTypes", "AuthAltParameters")
"""Keys of slurm.conf about tokens."""


def lines_of(stack: ClusterConfig, *keys: str) -> str:
    """Lines of the slurm.conf that a stack has, for `extra`."""
    settings = effective_settings(stack)
    return "".join(f"{key}={settings[key]}\n" for key in keys)


def minimal_config(version: str, extra: str = "", **files: str) -> dict[str, str]:
    """The least that a cluster of dynamic nodes needs; `extra` is added to slurm.conf."""
    # As in the real configuration: by default Slurm puts off what comes after a job's end for three seconds, and looks
    # at what no event has told it of once a minute.
    at_once = "batch_sched_delay=0,sched_min_interval=0,sched_interval=5,bf_interval=5"
    at_once = "" if "SchedulerParameters" in extra else f"SchedulerParameters={at_once}"
    slurm_conf = f"""\
ClusterName=sandbox
SlurmctldHost=controller-0
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldParameters=enable_configless
MaxNodeCount=64
TreeWidth=65533
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=1
LaunchParameters=use_interactive_step,disable_send_gids
MailProg=/bin/true
NodeSet=default Feature=default
PartitionName=main Nodes=default Default=YES State=UP
{at_once}
{extra}
"""
    return {"slurm.conf": slurm_conf, "cgroup.conf": "CgroupPlugin=disabled\n", **files}
