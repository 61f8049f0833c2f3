"""What Slurm says, asked in one call, for `status` and `doctor`: nodes, the queue, its configuration, slurmdbd."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cli.kubectl.client import LOG_IN, Kubectl, complaint
from cli.kubectl.pods import DATABASE, put
from cli.text import printable
from images.common.slurm_jobs import PENDING, RUNNING, Job, JobList
from images.common.slurm_records import Columns
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
class Said:
    """What Slurm has answered."""

    reached: bool = True
    """Whether commands could be run in the controller's pod."""
    slurmctld: str = ""
    """Why it does not answer; empty if it does."""
    slurmdbd_answers: bool | None = None
    """None where it was not asked."""
    parts: Mapping[str, Any] = field(default_factory=dict)
    """By question: what was read."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """By question: why nothing was."""


def ask(
    kubectl: Kubectl,
    namespace: str,
    first: Mapping[str, str],
    then: Mapping[str, str],
    readers: Mapping[str, Callable[[str], Any]],
    *,
    seconds: float,
    each: float,
    accounting: bool,
) -> Said:
    """Put questions as `pods.put` does, and read the answers. Whether slurmctld answers, the last one of `first` says.

    `readers`: by question, what makes something of the text. Nothing is raised.
    """
    answers, done = put(kubectl, namespace, first, then, seconds=seconds, each=each, slurmdbd=accounting)
    if not answers:
        why = " ".join(complaint(done).split())
        refused = f"not allowed to run commands in its pod; {LOG_IN}"
        return Said(reached=False, slurmctld=refused if "forbidden" in why else why)
    return read_answers(answers, first, then, readers, seconds=seconds, each=each)


def read_answers(
    answers: Mapping[str, tuple[int, str]],
    first: Mapping[str, str],
    then: Mapping[str, str],
    readers: Mapping[str, Callable[[str], Any]],
    *,
    seconds: float,
    each: float,
) -> Said:
    """What the answers say."""
    parts: dict[str, Any] = {}
    unread: dict[str, str] = {}
    code, said = answers.get([*first][-1], (LATE, ""))
    silent = ""
    if code:
        without, munge = answers.get("munge", (0, ""))
        silent = said or (f"munge does not answer. {munge}" if without else f"no answer within {each:g} s")
    for name in (*first, *then):
        status, text = answers.get(name, (None, ""))
        if name not in readers or (silent and status != 0):
            continue
        if status == 0:
            try:
                parts[name] = readers[name](text)
            except Exception:  # noqa: BLE001  whatever it has printed: the other answers count all the same
                unread[name] = "the answer is not understood"
        elif status in {LATE, None}:
            unread[name] = f"no answer within {each if status else seconds:g} s"
        else:
            unread[name] = f"exit status {status}"
    database = answers[DATABASE][0] == 0 if DATABASE in answers else None
    return Said(slurmctld=" ".join(silent.split())[:300], slurmdbd_answers=database, parts=parts, unread=unread)


def ask_slurm(kubectl: Kubectl, namespace: str, *, accounting: bool) -> Said:
    """What `status` shows: the parts `configuration`, `nodes` and `queue`."""
    said = ask(kubectl, namespace, _FIRST, _THEN, _READERS, seconds=SECONDS, each=_EACH, accounting=accounting)
    # Nobody can tell of slurmdbd where slurmctld is silent.
    return replace(said, slurmdbd_answers=None) if said.slurmctld else said


def _nodes(text: str) -> tuple[SlurmNode, ...]:
    """Each once, of however many partitions it is."""
    found = {row["NodeHost"]: node_of(row) for row in _NODES.rows(text, mixed=True)}
    return tuple(node for _, node in sorted(found.items()))


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


def configuration_of(text: str) -> dict[str, Any]:
    """The configuration agent's state."""
    return dict(json.loads(text))


_READERS: Mapping[str, Callable[[str], Any]] = {
    "configuration": configuration_of,
    "nodes": _nodes,
    "queue": lambda text: queue_of(_JOBS.read(text)),
}


def is_down(state: str) -> bool:
    """Whether slurmctld gives no jobs to a node in this state."""
    return state.startswith(("down", "drain", "fail", "unknown", "future")) or state.endswith("*")


def describe_configuration(wanted: str, state: Mapping[str, Any] | None) -> str:
    """The configuration in force, as the agent's state has it, compared with the wanted one, a hash, in words."""
    if state is None:
        return "unknown"
    if state.get("active") == wanted:
        return "active"
    if rejected := state.get("rejected"):
        return f"rejected: {rejected['message']}"
    return "pending" if state.get("pending") else "other than the stack file"
