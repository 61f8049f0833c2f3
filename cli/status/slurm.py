"""What Slurm says, asked in one call: nodes, the queue, the configuration in force, and whether slurmdbd answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cli.kubectl.client import LOG_IN, Kubectl, complaint, in_controller
from cli.kubectl.pods import DATABASE, put
from cli.text import printable
from images.common.slurm_jobs import PENDING, RUNNING, Job, JobList
from images.common.slurm_records import Columns, NotUnderstoodError
from slurm.names import CONFINEMENT

SECONDS = 10
"""For all answers together: Slurm's own commands would try for a minute and more."""

LATE = 124
"""Exit status of a question that was not answered in its time."""

STATE_FILE = "/run/slurmstack/configuration.json"
"""Where the configuration agent writes what it knows (images/controller/agent.py)."""

_EACH = 8
"""Seconds for one question."""

_NODES = Columns(("NodeHost", "StateLong", "Timestamp", "User", "Reason", "Extra"))
_FIRST = {
    "configuration": f"cat {STATE_FILE}",
    "nodes": f"sinfo --all --Node --noheader '{_NODES.option}' 2>&1",
}
_JOBS = JobList("id", "state", "reason")
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
    code, said = answers.get("nodes", (LATE, ""))
    if code:
        silent = " ".join(said.split()) or f"no answer within {_EACH} s"
        return Answers(configuration=state, slurmctld=silent, unread=unread)
    nodes: tuple[SlurmNode, ...] = ()
    try:
        # Each once, of however many partitions it is.
        nodes = tuple(
            node for _, node in sorted({row["NodeHost"]: node_of(row) for row in _NODES.rows(said, mixed=True)}.items())
        )
    except NotUnderstoodError as error:
        unread["nodes"] = f"sinfo: {error}"
    queue = None
    code, text = answers.get("queue", (LATE, ""))
    if code:
        unread["queue"] = f"squeue: exit status {code}" if code != LATE else f"squeue: no answer within {_EACH} s"
    else:
        try:
            queue = queue_of(_JOBS.read(text))
        except NotUnderstoodError as error:
            unread["queue"] = f"squeue: {error}"
    return Answers(
        nodes=nodes,
        queue=queue,
        configuration=state,
        slurmdbd_answers=answers[DATABASE][0] == 0 if DATABASE in answers else None,
        unread=unread,
    )


def node_of(row: Mapping[str, str]) -> SlurmNode:
    """A node as sinfo has it. In what others have written there may be whatever moves a cursor."""
    try:
        said = json.loads(row["Extra"])
    except (ValueError, RecursionError):  # somebody else's text
        said = {}
    return SlurmNode(
        name=printable(row["NodeHost"]),
        state=printable(row["StateLong"]),
        reason="" if row["Reason"] == "none" else row["Reason"],
        since="" if row["Timestamp"] == "Unknown" else row["Timestamp"],
        by="" if row["User"] == "Unknown" else row["User"],
        confinement=str(said.get(CONFINEMENT, "")) if isinstance(said, dict) else "",
    )


def queue_of(jobs: Iterable[Job]) -> Queue:
    """The queue in numbers."""
    states: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for job in jobs:
        states[job.base_state] += job.tasks
        if job.waits:
            reasons[job.reason or "None"] += job.tasks
    return Queue(
        running=states[RUNNING],
        pending=states[PENDING],
        other=states.total() - states[RUNNING] - states[PENDING],
        reasons=dict(reasons.most_common()),
    )


def is_down(state: str) -> bool:
    """Whether slurmctld gives no jobs to a node in this state."""
    return state.startswith(("down", "drain", "fail", "unknown", "future")) or state.endswith("*")


def configuration_state(kubectl: Kubectl, namespace: str) -> dict[str, Any] | None:
    """Hashes of the `active` and the `pending` configuration, and what was `rejected`; None without an answer.

    Not by way of the agent's port and the API server: network policies keep that away.
    """
    answer = in_controller(kubectl, namespace, "cat", STATE_FILE, seconds=20)
    if answer.returncode != 0:
        return None
    state: dict[str, Any] = json.loads(answer.stdout)
    return state


def describe_configuration(wanted: str, state: Mapping[str, Any] | None) -> str:
    """The configuration in force, as the agent's state has it, compared with the wanted one, a hash, in words."""
    if state is None:
        return "unknown"
    if state.get("active") == wanted:
        return "active"
    if rejected := state.get("rejected"):
        return f"rejected: {rejected['message']}"
    return "pending" if state.get("pending") else "other than the stack file"
