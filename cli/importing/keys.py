"""What becomes of Slurm's keys: their place in the stack file, or what to use instead. Others are `slurm.settings`."""

from __future__ import annotations

PLACES = {
    "clustername": ("slurm", "cluster_name"),
    "topologyplugin": ("topology", "plugin"),
    "preempttype": ("preemption", "type"),
    "preemptmode": ("preemption", "mode"),
}
OF_ELASTIC_POOLS = {"suspendtime": "idle_timeout", "resumetimeout": "resume_timeout"}
_WHY = {
    "Prolog Epilog PrologSlurmctld EpilogSlurmctld HealthCheckProgram HealthCheckInterval HealthCheckNodeState": (
        "belongs to a program of the old cluster; slurmstack:health has checks (docs/health.md)"
    ),
    "TaskProlog TaskEpilog SrunProlog SrunEpilog MailProg MailDomain RebootProgram UnkillableStepProgram PluginDir "
    "PlugStackConfig": "is a program of the old cluster, which the images do not have",
    "JobSubmitPlugins": "is a program of the old cluster; slurmstack:job_submit has the usual rules",
    "JobCompType JobCompLoc JobCompParams": "sacct has the records of jobs: leave it out",
    "SlurmctldHost ControlMachine ControlAddr BackupController BackupAddr SlurmctldAddr": "hosts are pods here",
    "SrunPortRange": "Services are made for our ports",
    "TmpFS": "jobs have a /tmp of their own: worker_nodes.<pool>.tmp is its size",
    "JobCredentialPrivateKey JobCredentialPublicCertificate AuthInfo": "is a path of the old cluster",
    "FastSchedule CryptoType CacheGroups CheckpointType SchedulerPort SchedulerRootFilter AccountingStorageLoc "
    "JobCheckpointDir MemLimitEnforce SallocDefaultCommand UsePAM FrontendName": (
        "Slurm has dropped it, or a pod has no use for it"
    ),
    "ProctrackType JobAcctGatherType TaskPlugin SwitchType NodeFeaturesPlugins": "workers decide it by their machine; "
    "where a pool has confinement: off, slurm.settings can say it",
    "AccountingStorageType AccountingStorageHost AccountingStoragePort AccountingStoragePass AccountingStorageUser": (
        "jobs are recorded by slurmdbd here; accounting.enabled: false turns it off"
    ),
    "GresTypes MaxNodeCount": "is made from the pools",
    "SuspendTime SuspendTimeout ResumeTimeout ResumeRate SuspendRate": "use an elastic pool: worker_nodes.<pool>.size: "
    "{min: 0, max: N} with idle_timeout and resume_timeout",
    "SuspendExcNodes SuspendExcParts": "say how many nodes stay up: worker_nodes.<pool>.size.min",
    "DownNodes State": "nodes begin idle: drain them with scontrol",
    "Boards Sockets SocketsPerBoard CoresPerSocket ThreadsPerCore": "counts in cpus: jobs are given each by itself",
    "NodeAddr NodeHostname BcastAddr Port Reason CoreSpecCount CpuSpecList MemSpecLimit": "belongs to the old machine",
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
AccountingStorageType=accounting_storage/slurmdbd TopologyPlugin=topology/flat TopologyPlugin=topology/default
TopologyPlugin=topology/none
"""
DEFAULTS = frozenset(_DEFAULTS.lower().split())
"""Slurm's defaults as configurators write them out, in small letters."""
