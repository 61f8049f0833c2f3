"""Slurm's reasons for a job that waits, in plain words: a table, the first line that fits counts.

After the section JOB REASON CODES of squeue(1), 24.11 and 26.05. A reason that is not here is shown as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["turn", "limit", "held", "never", "unknown"]
"""`turn`: it starts when its time comes. `limit`: when others of its user, account or QOS have ended. `held`: somebody
has to let it go. `never`: not as it stands."""


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What a reason says."""

    kind: Kind
    words: str
    mend: str
    """A command, or a sentence; `{id}`, `{partition}`, `{account}`, `{qos}`, `{user}` are those of the job."""


_PER_JOB = "squeue -j {id} -O JobArrayID,tres-per-node,NumCPUs,NumNodes,MinMemory,TimeLimit"
_SHOW = "scontrol show job {id} | cat -v"
"""A job's name, its comment and its account are any text: `cat -v` makes visible what would move the cursor."""
_START = "squeue --start -j {id} --format='%i %S %r'"
_QOS = "sacctmgr show qos {qos} format=Name,MaxTRESPU,MaxJobsPU,MaxTRES,MaxWall,GrpTRES,GrpJobs"
_ASSOC = "sacctmgr show assoc account={account} format=Account,User,GrpTRES,GrpJobs,MaxTRES,MaxJobs,MaxWall"
_CANCEL = "scancel {id}"
_LIMITS = "raise it in slurmstack:accounts or slurmstack:qos and `slurmstack up`; as it is: "

_TABLE: tuple[tuple[str, Kind, str, str], ...] = (
    # it waits for its turn
    (r"Resources", "turn", "waits for nodes to get free: it is the next in its partition", _START),
    (r"Priority", "turn", "jobs of higher priority are before it in its partition", "sprio -l -j {id} | cat -v"),
    (r"Dependency", "turn", "waits for other jobs", _SHOW),
    (r"BeginTime", "turn", "is not to start before its --begin time, or was just requeued",
        "scontrol update jobid={id} starttime=now"),
    (r"JobArrayTaskLimit", "turn", "as many tasks of its array run as it allows itself (%N)",
        "scontrol update jobid={id} arraytaskthrottle=0"),
    (r"Licenses|LicenseReservation", "turn", "waits for licenses that other jobs have", "scontrol show licenses"),
    (r"Reservation\b", "turn", "waits for its reservation to begin, or for room in it", "scontrol show reservation"),
    (r"Cleaning|Prolog|NodeWait|WaitingForScheduling|SchedDefer|None|$", "turn", "has just come, or is about to start",
        "wait some seconds"),
    (r"FedJobLock|Reconfig", "turn", "slurmctld is busy for a moment", "wait some seconds"),
    (r"BurstBuffer\w*", "turn", "waits for its burst buffer", _SHOW),
    # nodes are not there
    (r"Nodes required for job are DOWN, DRAINED.*", "turn",
        "the nodes that it needs are down, drained or kept for partitions of higher priority",
        "slurmstack doctor; " + _SHOW),
    (r"ReqNodeNotAvail.*[Rr]eserved for maintenance.*", "turn", "would run into a maintenance reservation",
        "scontrol show reservation; a shorter time limit may fit before it: scontrol update jobid={id} timelimit=..."),
    (r"ReqNodeNotAvail.*", "turn", "nodes that it needs are down, drained, reserved or busy",
        "slurmstack doctor; scontrol show reservation"),
    (r"NodeDown|BootFail\w*", "turn", "a node that it was to run on is down", "slurmstack doctor"),
    # held
    (r"JobHeldUser", "held", "its user holds it", "scontrol release {id}"),
    (r"JobHeldAdmin", "held", "an administrator holds it, or its priority is 0", "scontrol release {id}"),
    (r"launch failed requeued held.*|.*requeued held.*|JobLaunchFailure", "held",
        "could not be started, and Slurm holds it so that it does not try for ever",
        "look at the node (`slurmstack health`), then: scontrol release {id}"),
    (r"job requeued in (held|special exit) state", "held", "somebody has ended it and put it back into the queue, held",
        "scontrol release {id}"),
    (r"JobHoldMaxRequeue|MaxRequeue", "held", "was requeued too often, and is held", "scontrol release {id}"),
    (r"DeadLine", "never", "can no longer end before its deadline", _CANCEL),
    (r"ReservationDeleted", "never", "its reservation was deleted",
        "scontrol update jobid={id} reservation=; scontrol release {id}"),
    # it can never start as it is
    (r"DependencyNeverSatisfied", "never", "the job that it depends on has not ended as it demands",
        "scancel {id}, or without the dependency: scontrol update jobid={id} dependency="),
    (r"BadConstraints", "never", "asks for what no node has (features, memory, CPUs, GPUs)",
        "correct it (scontrol update jobid={id} ...), then: scontrol release {id}"),
    (r"PartitionDown|PartitionInactive|PartitionDrain", "never", "its partition takes or starts no jobs",
        "scontrol update jobid={id} partition=ANOTHER; scontrol show partition {partition}"),
    (r"PartitionConfig", "never", "asks for what its partition does not allow, or has no nodes for",
        "scontrol show partition {partition}; scontrol update jobid={id} partition=ANOTHER"),
    (r"PartitionTimeLimit", "never", "its time limit is longer than its partition allows",
        "scontrol update jobid={id} timelimit=..., or raise partitions.{partition}.max_time and `slurmstack up`"),
    (r"PartitionNodeLimit", "never", "asks for more nodes, or fewer, than its partition allows or has",
        "scontrol update jobid={id} numnodes=..."),
    (r"MaxMemPerLimit", "never", "asks for more memory than its partition or any node has",
        "scontrol update jobid={id} minmemorynode=..., in MiB"),
    (r"InvalidAccount|AccountNotAllowed|AssociationJobLimit", "never",
        "its account does not exist, or may not run there",
        "sacctmgr show assoc user={user}; scontrol update jobid={id} account=..."),
    (r"InvalidQOS|QOSNotAllowed|QOSJobLimit", "never", "its QOS does not exist, or may not run there",
        "sacctmgr show assoc user={user} format=User,Account,QOS; scontrol update jobid={id} qos=..."),
    (r"(QOS|Assoc)Max\w*(PerJob|PerNode|MinutesPerJob|WallDurationPerJob)\w*", "never",
        "asks for more than one job may have by its account or QOS", _LIMITS + _PER_JOB),
    (r"QOSMin\w*", "never", "asks for less than its QOS demands", _PER_JOB),
    (r"QOSUsageThreshold|QOSTimeLimit|AssociationTimeLimit", "limit", "its account or QOS has used up its time", _QOS),
    # limits that others free
    (r"QOSGrp\w*", "limit", "all jobs of its QOS together have reached a limit", _LIMITS + _QOS),
    (r"QOSMax\w*", "limit", "its user or account has reached a limit of its QOS", _LIMITS + _QOS),
    (r"AssocGrp\w*", "limit", "its account and those below have reached a limit together", _LIMITS + _ASSOC),
    (r"Max\w*PerAccount", "limit", "its account has reached a limit of its QOS", _LIMITS + _QOS),
    (r"AssocMax\w*|Assoc\w*Limit", "limit", "its user has reached a limit in this account", _LIMITS + _ASSOC),
    (r"AccountingPolicy", "limit", "a limit of its account or QOS is reached", _ASSOC),
)  # fmt: skip


def meaning(reason: str, detail: str = "") -> Meaning:
    """What a reason means. `detail`: as squeue writes it in full; it tells more where nodes are not available."""
    for text in (detail, reason):
        for pattern, kind, words, mend in _TABLE if text or text is reason else ():
            if re.fullmatch(pattern, text):
                return Meaning(kind=kind, words=words, mend=mend)
    return Meaning(kind="unknown", words=f"Slurm's reason is {reason or detail}", mend=_SHOW)
