"""The one reader of Slurm's queue: a `Job` has the columns of squeue that were asked for.

Columns and not JSON, which is up to 8 kB a job: a queue of 10,000 would be 80 MB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from images.common.command import Runner
from images.common.slurm_records import Columns, amounts, count, expand, moment, seconds, task_count

RUNNING: Final = "RUNNING"
PENDING: Final = "PENDING"
SUSPENDED: Final = "SUSPENDED"
ENDED: Final = "COMPLETING"
"""Of a job that has ended, and whose nodes are not free yet."""

_MORE_STATES: Final = {
    **dict.fromkeys(("CONFIGURING", "POWER_UP_NODE", "RECONFIG_FAIL", "RESIZING", "SIGNALING", "STOPPED"), RUNNING),
    **dict.fromkeys(
        ("EXPEDITING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"), PENDING
    ),
}
"""squeue shows one of these in place of the state that a job has besides (src/common, `job_state_string`)."""

ENVIRONMENT: Final = {"SLURM_BITSTR_LEN": "0", "SLURM_TIME_FORMAT": "%s"}
"""For squeue. Without the first one the tasks of an array are cut off after 64 characters; times are seconds since
1970."""

_YEAR: Final = 365 * 24 * 3600
"""Seconds of the limit that the backfill scheduler gives to a job that has none, when it starts it."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that has not ended, or the tasks of an array that wait together. What was not asked for has its default."""

    id: str = ""
    """As squeue shows it and scancel takes it: `12`, `12_3`, `12_[4-100]`."""
    number: str = ""
    """Slurm's own, one for each task that has started."""
    name: str = ""
    user: str = ""
    account: str = ""
    qos: str = ""
    comment: str = ""
    partitions: tuple[str, ...] = ()
    """One that waits may name several."""
    state: str = ""
    reason: str = ""
    """Slurm's word for why it waits; empty where it has none."""
    detail: str = ""
    """The reason in full, for example with the names of nodes."""
    node_list: str = ""
    """Where it runs; empty while it waits."""
    min_nodes: int = 0
    cpus: int = 0
    """On all nodes together."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """TRES that it has, or waits for; memory in MiB."""
    restarts: int = 0
    submitted: float | None = None
    """Times are in seconds since 1970; None where they have not come, or nobody knows."""
    eligible: float | None = None
    start: float | None = None
    """Of one that waits: when the scheduler expects to start it."""
    end: float | None = None
    used: int | None = None
    """Seconds that it has run."""
    left: int | None = None
    """Seconds that its time limit leaves it; None if there is no limit."""
    limit: int | None = None
    """Its time limit in seconds; None if there is none."""

    @property
    def base_state(self) -> str:
        """`PENDING`, `RUNNING`, ...: what it is besides a state that squeue shows in place of that."""
        return _MORE_STATES.get(self.state, self.state)

    @property
    def waits(self) -> bool:
        """Whether it has no nodes yet."""
        return self.base_state == PENDING

    @property
    def nodes(self) -> tuple[str, ...]:
        """Where it runs; empty while it waits."""
        return expand(self.node_list)

    @property
    def tasks(self) -> int:
        """How many jobs it stands for."""
        return task_count(self.id)


def _text(value: str) -> str:
    return "" if value in {"N/A", "None"} else value


def _span(value: str) -> int | None:
    found = seconds(value)
    return None if found is None else int(found)


_COLUMNS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    "id": ("JobArrayID", str),
    "number": ("JobID", str),
    "name": ("Name", str),
    "user": ("UserName", str),
    "account": ("Account", _text),
    "qos": ("QOS", _text),
    "comment": ("Comment", str),
    "partitions": ("Partition", lambda text: tuple(text.split(","))),
    "state": ("State", str),
    "reason": ("Reason", _text),
    "detail": ("ReasonList", lambda text: text.strip().removeprefix("(").removesuffix(")")),
    "node_list": ("NodeList", str),
    "min_nodes": ("NumNodes", count),
    "cpus": ("NumCPUs", count),
    "resources": ("tres-alloc", amounts),
    "restarts": ("RestartCnt", count),
    "submitted": ("SubmitTime", moment),
    "eligible": ("EligibleTime", moment),
    "start": ("StartTime", moment),
    "end": ("EndTime", moment),
    "used": ("TimeUsed", _span),
    "left": ("TimeLeft", lambda text: 0 if text == "INVALID" else _span(text)),  # past its limit
    "limit": ("TimeLimit", _span),
}
"""Field of a job -> column of squeue's `--Format`, and how that is read."""


class JobList:
    """A question for these fields of all jobs, and how its answer is read. Each question has marks of its own."""

    def __init__(self, *fields: str) -> None:
        # Of what is left nothing is known without the limit: is it one, or the year of the backfill scheduler?
        self._fields = tuple(dict.fromkeys((*fields, "limit"))) if "left" in fields else fields
        self._columns = Columns([_COLUMNS[name][0] for name in self._fields])
        self.command = ("squeue", "--all", "--noheader", "--noconvert", self._columns.option)

    @property
    def shell(self) -> str:
        """The command with its environment, for a shell."""
        *words, option = self.command
        return " ".join([*(f"{name}={value}" for name, value in ENVIRONMENT.items()), *words, f"'{option}'"])

    def read(self, printed: str) -> Iterator[Job]:
        """What squeue has printed. Raises NotUnderstoodError."""
        for row in self._columns.rows(printed):
            found = {name: read(row[column]) for name in self._fields for column, read in (_COLUMNS[name],)}
            if (found.get("limit") or _YEAR) >= _YEAR:
                found.update((name, None) for name in ("left", "limit") if name in found)
            yield Job(**found)


def jobs_on(node: str, uid: int, runner: Runner) -> list[Job]:
    """A user's jobs on a node, the one that has started last first. Raises OSError where Slurm does not say.

    `--states` would miss what is STOPPED or SIGNALING.
    """
    asked = ("/usr/bin/squeue", "--all", "--noheader", f"--nodelist={node}", "--sort=-S,-i", "--format=%U %T %A %i")
    result = runner([*asked, f"--user={uid}"], timeout=20.0)  # slurmctld looks through that one's jobs alone
    if "Invalid user" in result.stderr:
        # Nobody knows the number just now, as while SSSD starts: squeue shows no job then, and succeeds.
        result = runner(asked, timeout=20.0)
    if not result.ok:
        raise OSError(f"slurmctld does not say which jobs are on {node}: {result.message}")
    rows = (line.split() for line in result.stdout.splitlines())
    return [Job(state=state, number=number, id=shown) for of, state, number, shown in rows if int(of) == uid]
