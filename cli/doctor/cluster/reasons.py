"""Slurm's reasons for a job that waits, in plain words: a table, the first line that fits counts.

After the section JOB REASON CODES of squeue(1), 24.11 and 26.05. A reason that is not here is shown as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
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


_SHOW = "scontrol show job {id} | cat -v"
"""A job's name, its comment and its account are any text: `cat -v` makes visible what would move the cursor."""
_START = "squeue --start -j {id} --format='%i %S %r'"
_LIMITS = (
    "raise it in slurmstack:accounts or slurmstack:qos and `slurmstack up`; as it is: "
    "sacctmgr show qos {qos} format=Name,MaxTRESPU,MaxJobsPU,MaxTRES,MaxWall,GrpTRES,GrpJobs; "
    "sacctmgr show assoc account={account} format=Account,User,GrpTRES,GrpJobs,MaxTRES,MaxJobs,MaxWall"
)

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
    (r"Nodes required for job are DOWN.*|ReqNodeNotAvail.*|NodeDown|BootFail\w*", "turn",
        "nodes that it needs are down, drained, reserved or busy", "slurmstack doctor; scontrol show reservation"),
    # somebody has to let it go
    (r"JobHeldUser", "held", "its user holds it", "scontrol release {id}"),
    (r"JobHeldAdmin", "held", "an administrator holds it, or its priority is 0", "scontrol release {id}"),
    (r".*requeued.* held.*|job requeued in .* state|JobLaunchFailure|JobHoldMaxRequeue|MaxRequeue", "held",
        "could not be started, or was requeued by somebody or too often, and is held",
        "slurmstack logs --job {id} shows why, then: scontrol release {id}"),
    # it can never start as it is
    (r"DependencyNeverSatisfied", "never", "the job that it depends on has not ended as it demands",
        "scancel {id}, or without the dependency: scontrol update jobid={id} dependency="),
    (r"BadConstraints|DeadLine|ReservationDeleted", "never",
        "asks for what there is not (features, memory, CPUs, GPUs, a reservation, time before its deadline)",
        "correct it (scontrol update jobid={id} ...), then: scontrol release {id}"),
    (r"Partition\w+", "never", "its partition takes no such job, or none",
        "scontrol show partition {partition}; scontrol update jobid={id} partition=ANOTHER"),
    (r"InvalidAccount|AccountNotAllowed|InvalidQOS|QOSNotAllowed", "never",
        "its account or QOS does not exist, or may not run there",
        "sacctmgr show assoc user={user} format=User,Account,QOS; scontrol update jobid={id} account=... qos=..."),
    (r"(QOS|Assoc)Max\w*(PerJob|PerNode|MinutesPerJob|WallDurationPerJob)\w*|QOSMin\w*|MaxMemPerLimit", "never",
        "asks for more, or less, than one job may have by its partition, account or QOS", _LIMITS),
    # limits that others free
    (r"QOS\w*|Assoc\w*|Max\w*PerAccount|AccountingPolicy", "limit",
        "its user, account or QOS has reached a limit", _LIMITS),
)  # fmt: skip


@cache
def meaning(reason: str, detail: str = "") -> Meaning:
    """What a reason means. `detail`: as squeue writes it in full; it tells more where nodes are not available."""
    for text in (detail, reason):
        for pattern, kind, words, mend in _TABLE if text or text is reason else ():
            if re.fullmatch(pattern, text):
                return Meaning(kind=kind, words=words, mend=mend)
    return Meaning(kind="unknown", words=f"Slurm's reason is {reason or detail}", mend=_SHOW)
