"""What Slurm says: nodes, the queue, the configuration in force and whether slurmdbd answers, asked in one call."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cli.kubectl.client import LOG_IN, Kubectl, complaint
from cli.kubectl.pods import DATABASE, put
from cli.status.configuration import STATE_FILE
from cli.text import printable
from images.common.slurm_jobs import PENDING, RUNNING, Job, JobList
from images.common.slurm_records import NotUnderstoodError
from slurm.names import CONFINEMENT

SECONDS = 10
"""For all answers together: Slurm's own commands would try for a minute and more."""

_EACH = 8
"""Seconds for one question."""

END = f"~{secrets.token_hex(8)}"
"""What ends the line of a node. A reason may have lines of its own: who can set one could write another node's."""

_FIRST = {
    "clock": "date +%s",
    "configuration": f"cat {STATE_FILE}",
    "nodes": "sinfo --all --Node --noheader "
    f"--Format='NodeHost:|,StateLong:|,Timestamp:|,User:|,Reason:|,Extra:{END}' 2>&1",
}
_JOBS = JobList("id", "state", "reason", "eligible")
_THEN = {"queue": _JOBS.shell}


@dataclass(frozen=True, kw_only=True)
class SlurmNode:
    """One Slurm node as `sinfo` has it."""

    name: str
    state: str
    reason: str
    since: str = ""
    """When the reason was given, `2026-11-25T19:24:05` in UTC."""
    by: str = ""
    """Who gave it."""
    confinement: str = ""
    """To what its jobs are held, as the node says; empty if it says nothing."""


@dataclass(frozen=True, kw_only=True)
class Queue:
    """The jobs that have not ended. Each task of an array counts."""

    running: int = 0
    pending: int = 0
    other: int = 0
    """Completing, suspended, ..."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Slurm's reason for waiting -> jobs, the most frequent one first."""
    longest_wait: int | None = None
    """Seconds since a pending job could have begun, at most; None if none could."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What has answered."""

    nodes: tuple[SlurmNode, ...] = ()
    queue: Queue | None = None
    configuration: Mapping[str, Any] | None = None
    """The configuration agent's state."""
    slurmctld: str = ""
    """Why it does not answer; empty if it does."""
    slurmdbd_answers: bool | None = None
    unread: Mapping[str, str] = field(default_factory=dict)


def ask_slurm(kubectl: Kubectl, namespace: str, *, accounting: bool) -> Answers:
    """Ask all. Nothing is raised."""
    answers, done = put(kubectl, namespace, _FIRST, _THEN, seconds=SECONDS, each=_EACH, slurmdbd=accounting)
    if not answers:
        why = " ".join(complaint(done).split())
        return Answers(slurmctld=f"not allowed to run commands in its pod; {LOG_IN}" if "forbidden" in why else why)
    unread: dict[str, str] = {}
    state: Mapping[str, Any] | None = None
    code, text = answers.get("configuration", (1, ""))
    try:
        state = dict(json.loads(text)) if not code else None
    except (ValueError, TypeError):
        unread["configuration"] = "what the configuration agent says is not understood"
    code, said = answers.get("nodes", (124, ""))
    if code:
        silent = " ".join(said.split()) or f"no answer within {_EACH} s"
        return Answers(configuration=state, slurmctld=silent, unread=unread)
    lines = {line.removeprefix("\n") for line in said.split(END)}
    nodes = tuple(node_of(line) for line in sorted(lines) if line.count("|") >= _SEPARATORS)
    code, text = answers.get("queue", (124, ""))
    queue, clock = None, answers.get("clock", (1, ""))[1]
    try:
        now = float(clock) if clock.isdecimal() else datetime.now(UTC).timestamp()
        queue = None if code else queue_of(_JOBS.read(text), now)
    except NotUnderstoodError as error:
        unread["queue"] = f"squeue: {error}"
    if code:
        unread["queue"] = f"squeue: exit status {code}" if code != _LATE else f"squeue: no answer within {_EACH} s"
    return Answers(
        nodes=nodes,
        queue=queue,
        configuration=state,
        slurmdbd_answers=answers[DATABASE][0] == 0 if DATABASE in answers else None,
        unread=unread,
    )


_LATE = 124
_SEPARATORS = 5


def node_of(line: str) -> SlurmNode:
    """A node as sinfo prints it. A reason may have separators in it, and whatever moves a cursor."""
    name, state, since, user, rest = line.split("|", 4)
    reason, _, extra = rest.rpartition("|")
    try:
        said = json.loads(extra)
    except (ValueError, RecursionError):  # somebody else's text
        said = {}
    confinement = said.get(CONFINEMENT, "") if isinstance(said, dict) else ""
    return SlurmNode(
        name=printable(name),
        state=printable(state),
        reason="" if reason == "none" else reason,
        since="" if since == "Unknown" else since,
        by="" if user == "Unknown" else user,
        confinement=str(confinement),
    )


def queue_of(jobs: Iterable[Job], now: float) -> Queue:
    """The queue in numbers; `now` by the controller's clock, in seconds since 1970."""
    states: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    waits: list[int] = []
    for job in jobs:
        states[job.base_state] += job.tasks
        if job.waits:
            reasons[job.reason or "None"] += job.tasks
            waits += [int(now - job.eligible)] if job.eligible is not None and job.eligible <= now else []
    return Queue(
        running=states[RUNNING],
        pending=states[PENDING],
        other=states.total() - states[RUNNING] - states[PENDING],
        reasons=dict(reasons.most_common()),
        longest_wait=max(waits, default=None),
    )


def is_down(state: str) -> bool:
    """Whether slurmctld gives no jobs to a node in this state."""
    return state.startswith(("down", "drain", "fail", "unknown", "future")) or state.endswith("*")
