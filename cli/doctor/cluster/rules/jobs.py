"""Jobs: those that never start as they are, partitions in which no node takes any, and one that is asked about."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from shlex import quote
from typing import Literal, NamedTuple

from cli.doctor.cluster.findings import Finding, Severity
from cli.status.questions import SlurmNode
from cli.status.snapshot import KnownJob, Snapshot
from cli.text import plain
from images.common.slurm_jobs import ENDED, Job
from images.common.slurm_records import moment, task_count

_SLURM = re.compile(r"(?:^|(?<=: )|(?<=; ))(?=(?:scontrol|squeue|scancel|sacctmgr|sprio) )")
_LISTED = 8
_NOT_ENDED = frozenset({"PENDING", "RUNNING", "SUSPENDED"})


def find(cluster: Snapshot) -> Iterator[Finding]:
    """What is wrong with jobs as a whole. Those that wait for their turn or for limits are as they should be."""
    groups: dict[str, list[Job]] = defaultdict(list)
    for job in cluster.jobs:
        if job.waits and job.reason != "JobHeldUser":
            groups[job.reason].append(job)
    for reason, jobs in groups.items():
        first, meant = jobs[0], meaning(reason, jobs[0].detail)
        if meant.kind not in {"never", "held"}:
            continue
        number = f"{len(jobs)} jobs" if len(jobs) > 1 else f"job {first.id} of {first.user}"
        never = "never start as they are" if len(jobs) > 1 else "never starts as it is"
        cause = f"{number} {'held' if meant.kind == 'held' else never}: {meant.words}"
        seen = (reason, *(f"{job.id} of {job.user}" for job in jobs[:_LISTED]))
        after = tuple(f"partition {name}" for name in first.partitions if meant.kind == "never")
        yield Finding(f"job {first.id}", "warning", cause, _mend(cluster, first, meant), seen, after, len(jobs))
    yield from _no_nodes(cluster)


def _mend(cluster: Snapshot, job: Job, meant: Meaning) -> str:
    """The command with this job's names, where Slurm's commands can be run.

    It is there to be copied into a shell, and users write names: an account may be any text.
    """
    id_ = job.id.partition("_[")[0]  # tasks of an array that wait together go by its number
    names = {"id": id_, "user": job.user, "partition": job.partitions[0]}
    names |= {"account": job.account or "ACCOUNT", "qos": job.qos or "QOS"}
    words = meant.mend.format(**{key: quote(plain(name)) for key, name in names.items()})
    return _SLURM.sub(cluster.slurm(""), words)


def _no_nodes(cluster: Snapshot) -> Iterator[Finding]:
    """Partitions in which jobs wait, and no node takes one."""
    waiting: dict[str, list[str]] = defaultdict(list)
    for job in cluster.jobs:
        if job.waits and meaning(job.reason, job.detail).kind == "turn":
            for name in job.partitions:
                waiting[name].append(job.id)
    for name, ids in waiting.items():
        nodes = [node for node in cluster.nodes if name in node.partitions]
        open_ = [node for node in nodes if not node.gets_no_jobs and not node.is_silent]
        if cluster.knows("slurm", "nodes") and not cluster.slurmctld and not open_:
            cause = f"{len(ids)} jobs wait in partition {name}, and none of its {len(nodes)} nodes takes jobs"
            mend = cluster.slurm(f"sinfo --partition={name} --list-reasons")
            seen = (f"jobs {', '.join(ids[:_LISTED])}",)
            yield Finding(f"queue {name}", "error", cause, mend, seen, _closers(nodes), len(ids))


def _closers(nodes: Iterable[SlurmNode]) -> tuple[str, ...]:
    """What findings are about that close these nodes: an elastic pool closes all of its own."""
    return tuple(dict.fromkeys(name for n in nodes for name in (f"node {n.name}", f"pool {n.name.rpartition('-')[0]}")))


def explain(cluster: Snapshot, known: KnownJob, errors: Sequence[str] = ()) -> Iterator[Finding]:
    """Why a job waits, runs, or has ended. Nothing if nobody knows it. `errors`: errors in the logs of its nodes."""
    base = re.split(r"[_+]", known.id)[0]
    there = [job for job in cluster.jobs if job.state != ENDED]
    queued = [job for job in there if job.id == known.id]
    queued = queued or [job for job in there if re.split(r"[_+]", job.id)[0] == base]
    for job in queued:
        yield _waiting(cluster, job, errors) if job.waits else _running(job)
    if not queued:
        yield from _ended(cluster, known, errors)


_ENDS: tuple[tuple[str, str], ...] = (
    (r"FAILED on no node .*", "it never ran: Slurm refused it when it was submitted"),
    (r"FAILED 0:53", "its script never ran: a file of its input or output, or its directory, could not be opened"),
    # An exit status has seven bits of Slurm's error 4007.
    (r"FAILED (0:39|167:0)", "srun could not start it: by its node's clock its credential had expired"),
    (r"FAILED 12[67]:0", "a command was not found, or could not be executed (or its exit status was 254 or 255)"),
    (r"FAILED 0:([1-9]\d*)", "signal {0} ended its script"),
    (r"FAILED ([4-9]|1[15]):0", "its script ended with exit status {0}, or 128 more: signal {0} ended a program of it"),
    (r"FAILED (\d+):0", "its script ended with exit status {0}"),
    (r"OUT_OF_ME\w* .*", "the kernel ended it, as it took more memory than it had asked for (--mem)"),
    (r"TIMEOUT .*", "its time limit was reached (--time)"),
    (r"NODE_FAIL .*", "its node was lost"),
    (r"PREEMPTED .*", "a job of higher rank took its place"),
)
"""State and exit status as sacct has them, with seven bits of it, and what they mean.

A job without a reason here is told as Slurm has it.
"""


def _why(state: str, code: str) -> str:
    found = ((re.fullmatch(pattern, f"{state} {code}"), words) for pattern, words in _ENDS)
    return next((f": {words.format(*match.groups())}" for match, words in found if match), "")


def _ended(cluster: Snapshot, known: KnownJob, errors: Sequence[str]) -> Iterator[Finding]:
    """By its record of last, or by what slurmctld still has of it."""
    run, code = known.last, ""
    job = next((job for job in known.present if job.base_state not in _NOT_ENDED), None)
    if job is not None and (run is None or run["State"] in _NOT_ENDED):  # slurmdbd has not heard of its end yet
        state, hosts, seen = job.state, job.node_list, [f"on {job.node_list or 'no node'}", job.reason]
    elif run is not None:
        code, hosts = run["ExitCode"], run["NodeList"].replace("None assigned", "")
        users = {run["UID"]: "its own user", "0": "root"}
        state = re.sub(r"\d+$", lambda by: users.get(by[0], f"the user with the number {by[0]}"), run["State"])
        start, end = (moment(run[name]) for name in ("Start", "End"))
        seen = [
            f"exit status {code}; on {hosts or 'no node'}",
            f"from {_time(start) if start else 'no start'} to {_time(end) if end else 'now'}",
            "" if run["Reason"] == "None" else run["Reason"],
        ]
    else:
        return
    if state in _NOT_ENDED:
        unread = () if cluster.knows("jobs") else ("the queue, which says more, could not be read",)
        mend = cluster.slurm(f"scontrol show job {known.id}")
        yield Finding(f"job {known.id}", "note", f"job {known.id} is {state.lower()}", mend, unread)
        return
    tasks = {job.id: job.state for job in known.present}
    tasks |= {run["JobID"]: f"{run['State']} {run['ExitCode']}" for run in known.runs if "." not in run["JobID"]}
    failed = {id_: end for id_, end in tasks.items() if not end.startswith(("COMPLET", *_NOT_ENDED))}
    if failed and len(tasks) > 1:  # an array's number is its last task's, too
        listed = ", ".join([f"{id_} ({end})" for id_, end in failed.items()][:_LISTED])
        state = f"of {sum(map(task_count, tasks))} tasks {sum(map(task_count, failed))} failed: {listed}"
        seen = []
    # While nodes are cleaned up after a job, squeue shows that in place of how it has ended: its reason tells.
    well = state.startswith("COMPLETED") or (state == ENDED and job is not None and not job.reason)
    severity: Severity = "note" if well else "warning"
    mend = f"slurmstack logs --job {known.id}"
    # A script may have survived all but the last error in its output. With it srun tells of each task that it failed.
    said = [text for text in errors if text.startswith("/") and state == "FAILED"]
    said.sort(key=lambda text: "Exited with exit code" not in text)
    last = f"; the last error, in {said[-1]}" if said else ""
    cause = f"job {known.id} has ended: {state}{_why(state if hosts else f'{state} on no node', code)}{last}"
    yield Finding(f"job {known.id}", severity, cause, mend, tuple(filter(None, (*seen, *errors[:_LISTED]))))


_TRIED_AGAIN = {"BeginTime", "None", ""}
"""Slurm's reasons of a job that was put back into the queue a moment ago; it has them of others as well."""


def _waiting(cluster: Snapshot, job: Job, errors: Sequence[str]) -> Finding:
    what, is_part = meaning(job.reason, job.detail), "+" in job.id
    if is_part and job.reason in {"Resources", "Priority"}:
        what = what._replace(words="the parts of a heterogeneous job start together, once all of them have room")
    failed = [text for text in errors if not text.startswith("the log of ")]
    if failed and job.reason in _TRIED_AGAIN:
        mend = "slurmstack logs --job {id}; slurmstack doctor"
        what = Meaning(kind="unknown", words=f"is tried again after an error: {failed[0]}", mend=mend)
    nodes = [node for node in cluster.nodes if set(node.partitions) & set(job.partitions)]
    if cluster.knows("nodes") and job.min_nodes > len(nodes):
        words = f"asks for {job.min_nodes} nodes, and its partition has {len(nodes)}"
        mend = "raise size, or max, of a pool of its partition and `slurmstack up`, or: scancel {id}"
        what = Meaning(kind="unknown", words=words, mend=mend)
    closed = [f"{node.name} {node.state} ({node.reason})" for node in nodes if node.gets_no_jobs]
    lines = [
        f"Slurm says {job.detail or job.reason}",
        f"nodes of its partition that take no jobs: {', '.join(closed[:4])}" if closed else "",
        f"the scheduler expects to start it at {_time(job.start)}" if job.start and not is_part else "",
        *errors[:_LISTED],  # of an earlier try
    ]
    severities: dict[str, Severity] = {"turn": "note", "limit": "note", "held": "warning", "never": "error"}
    severity, cause = severities.get(what.kind, "warning"), f"job {job.id} of {job.user} waits: {what.words}"
    after = _closers(nodes) if closed and len(closed) == len(nodes) else ()
    return Finding(f"job {job.id}", severity, cause, _mend(cluster, job, what), tuple(filter(None, lines)), after)


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def _running(job: Job) -> Finding:
    left = f"{job.left // 60} min are left of its time limit" if job.left is not None else "it has no time limit"
    cause = f"job {job.id} of {job.user} is {job.state.lower()} on {', '.join(job.nodes)}"
    return Finding(f"job {job.id}", "note", cause, "nothing to mend", (left,))


# ---------------------------------------------------------------- Slurm's reasons in plain words

Kind = Literal["turn", "limit", "held", "never", "unknown"]
"""`turn`: it starts when its time comes. `limit`: when others of its user, account or QOS have ended. `held`: somebody
has to let it go. `never`: not as it stands."""


class Meaning(NamedTuple):
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

# After the section JOB REASON CODES of squeue(1), 24.11 and 26.05. The first line that fits counts.
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
                return Meaning(kind, words, mend)
    return Meaning("unknown", f"Slurm's reason is {reason or detail}", _SHOW)
