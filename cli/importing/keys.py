"""What becomes of Slurm's keys: their place in the stack file, or what to use instead. Others are `slurm.settings`."""

from __future__ import annotations

from config.base import Section
from config.sections.accounting import Accounting
from config.sections.slurm import Preemption, Topology

ALIASES = {"procs": "cpus", "features": "feature", "priority": "prioritytier"}
PLACES: dict[str, tuple[tuple[str, ...], type[Section], str]] = {
    "topologyplugin": (("topology",), Topology, "plugin"),
    "preempttype": (("preemption",), Preemption, "type"),
    "preemptmode": (("preemption",), Preemption, "mode"),
    "accountingstorageenforce": (("accounting",), Accounting, "enforce"),
}
OF_ELASTIC_POOLS = {"suspendtime": "idle_timeout", "resumetimeout": "resume_timeout"}
_WHY = {
    "Include": "is no key: slurm.conf has `Include FILE`, without = and without *",
    "SlurmctldHost ControlMachine ControlAddr BackupController BackupAddr SlurmctldAddr": "hosts are pods here",
    "SrunPortRange JobCredentialPrivateKey JobCredentialPublicCertificate AuthInfo TaskProlog TaskEpilog SrunProlog "
    "SrunEpilog MailProg MailDomain RebootProgram UnkillableStepProgram PluginDir PlugStackConfig NodeAddr "
    "NodeHostname BcastAddr Port Reason CoreSpecCount CpuSpecList MemSpecLimit SwitchType NodeFeaturesPlugins UsePAM": (
        "belongs to the old machines"
    ),
    "FastSchedule CryptoType CacheGroups CheckpointType SchedulerPort SchedulerRootFilter AccountingStorageLoc "
    "JobCheckpointDir MemLimitEnforce SallocDefaultCommand FrontendName": "Slurm has dropped it",
    "Prolog Epilog PrologSlurmctld EpilogSlurmctld HealthCheckProgram HealthCheckInterval HealthCheckNodeState": (
        "belongs to the old machines; slurmstack:health has checks (docs/health.md)"
    ),
    "ProctrackType TaskPlugin JobAcctGatherType": "workers use cgroups where they can: worker_nodes.<pool>.confinement",
    "JobSubmitPlugins": "belongs to the old machines; slurmstack:job_submit has the usual rules",
    "JobCompType JobCompLoc JobCompParams": "sacct has the records of jobs: leave it out",
    "TmpFS": "jobs have a /tmp of their own: worker_nodes.<pool>.tmp is its size",
    "GresTypes MaxNodeCount": "is made from the pools",
    "State=CLOUD SuspendTime SuspendTimeout ResumeTimeout ResumeRate SuspendRate SuspendExcNodes SuspendExcParts": (
        "use an elastic pool: worker_nodes.<pool>.size: {min: 0, max: N} with idle_timeout and resume_timeout"
    ),
    "DownNodes State": "nodes begin idle: drain them with scontrol",
    "Boards Sockets SocketsPerBoard CoresPerSocket ThreadsPerCore": "counts in cpus: jobs are given each by itself",
    "NodeSet": "partitions are over pools: those over this set are over its nodes' pools",
    "Name AutoDetect Cores Links Flags": "slurmd finds the devices and what is near to them itself",
}
WHY = {key.lower(): why for keys, why in _WHY.items() for key in keys.split()}
"""What to use instead of keys that `slurm.settings` would take, or refuse without saying that. All in small letters."""

OTHERWISE = "has no effect: another one holds, or nothing in these files goes by it"

_DEFAULTS = """
State=UP State=UNKNOWN State=IDLE Weight=1 TmpDisk=0 Default=NO Hidden=NO RootOnly=NO OverSubscribe=NO Shared=NO
MinNodes=1 LLN=NO ExclusiveUser=NO AllowAccounts=ALL AllowGroups=ALL AllowQos=ALL MaxTime=INFINITE MaxTime=UNLIMITED
MaxTime=-1 GraceTime=0 MaxNodes=UNLIMITED PriorityTier=1 InactiveLimit=0 WaitTime=0 FirstJobId=1
JobCompType=jobcomp/none SwitchType=switch/none JobAcctGatherFrequency=30 PreemptType=preempt/none
TopologyPlugin=topology/flat TopologyPlugin=topology/default TopologyPlugin=topology/none
"""
DEFAULTS = frozenset(_DEFAULTS.lower().split())
"""Slurm's defaults as configurators write them out, in small letters."""
