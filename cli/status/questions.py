"""What `status` and `doctor` ask of Kubernetes and of Slurm, and how the answers are read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cli.errors import Failure
from cli.kubectl.client import LOG_IN, Kubectl, complaint, message, understood
from cli.kubectl.pods import DATABASE, STATE_FILE, configuration_of, put
from cli.text import brief, printable
from images.common.slurm_jobs import JobList
from images.common.slurm_records import Columns, Has, NodeRecord, node_records
from slurm.names import CONFINEMENT, STATE_DIR

LATE = 124
"""Exit status of a question that was not answered in its time."""


@dataclass(frozen=True, kw_only=True)
class SlurmNode(NodeRecord):
    """A node's record."""

    gets_no_jobs = Has("DRAIN", "DOWN", "FAIL", "ERROR", "INVALID_REG", "INVAL", "UNKNOWN")
    """Whether it is closed, or Slurm does not take it as it is."""

    @property
    def state(self) -> str:
        """As `sinfo` would write it, roughly."""
        return "+".join(sorted(self.states - {"DYNAMIC_NORM"})).lower()


@dataclass(frozen=True, kw_only=True)
class ListedNode:
    """One Slurm node as `sinfo` lists it: a tenth of its record."""

    name: str
    state: str
    reason: str
    since: str = ""
    """When the reason was given, `2026-11-25T19:24:05` in UTC."""
    by: str = ""
    """Who gave it."""
    confinement: str = ""
    """To what its jobs are held, as the node says; empty if it says nothing."""

    @property
    def is_down(self) -> bool:
        """Whether slurmctld gives no jobs to it."""
        return self.state.startswith(("down", "drain", "fail", "unknown", "future")) or self.state.endswith("*")


KINDS = {
    "cronjobs": ("CronJob", "backups"),
    "pods": ("Pod", "pods"),
    "services": ("Service", "services"),
    "nodes": ("Node", "machines"),
    "statefulsets": ("StatefulSet", "workloads"),
    "podtemplates": ("PodTemplate", "workloads"),
    "deployments": ("Deployment", "workloads"),
    "jobs": ("Job", "workloads"),
    "persistentvolumeclaims": ("PersistentVolumeClaim", "claims"),
    "leases": ("Lease", "lease"),
    "events": ("Event", "events"),
    "namespaces": ("Namespace", "namespace"),
}
"""Kinds as the API server calls them -> as an object calls itself, and the part of the Snapshot."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What one command wants to know, and for how long it waits."""

    kinds: tuple[tuple[str, ...], ...]
    """By call of kubectl, which asks for one kind after the other; a large cluster's pods take long."""
    first: tuple[str, ...]
    """Questions to Slurm that are always put. By the last one it is seen whether slurmctld answers."""
    then: tuple[str, ...]
    """Those that are put if it does."""
    jobs: JobList
    patience: float
    """Seconds for Kubernetes."""
    seconds: float
    """For all answers of Slurm together. What has answered by then counts: its own commands try for a minute and more.
    """
    each: float
    """For one of them."""

    @property
    def parts(self) -> frozenset[str]:
        """What the parts are called that Kubernetes is asked for."""
        return frozenset(KINDS[kind][1] for kinds in self.kinds for kind in kinds)


STATUS = Wanted(
    kinds=(("pods", "statefulsets", "services", "cronjobs"),),
    first=("configuration", "sinfo"),
    then=("jobs",),
    jobs=JobList("id", "state", "reason"),
    patience=20,
    seconds=10,
    each=8,
)

DOCTOR = Wanted(
    kinds=(
        ("pods", "nodes"),
        ("statefulsets", "podtemplates", "deployments", "jobs", "persistentvolumeclaims", "leases"),
        ("events",),
        ("namespaces",),
    ),
    # Slurm tries munge for longer than a question may take, and then names it: so it is asked itself.
    first=("clock", "configuration", "room", "munge", "slurmctld"),
    then=("nodes", "jobs", "partitions"),
    jobs=JobList(
        "id", "user", "account", "qos", "partitions", "state", "reason", "detail", "node_list", "left", "start",
        "min_nodes",
    ),
    patience=3,
    seconds=3,
    each=2,
)  # fmt: skip

_LISTED = Columns(("NodeHost", "StateLong", "Timestamp", "User", "Reason", "Extra"))

_QUESTIONS = {
    "clock": "date +%s",
    "configuration": f"cat {STATE_FILE}",
    "room": f"df --block-size=1 --output=avail,size {STATE_DIR}",
    "munge": "timeout 1 sh -c 'munge -n | unmunge' 2>&1 >/dev/null",
    "slurmctld": "sinfo --noheader --format=%R 2>&1",
    "sinfo": f"sinfo --all --Node --noheader '{_LISTED.option}' 2>&1",
    "nodes": "scontrol show nodes --json",
    "partitions": "scontrol show partitions --oneliner",
}
"""In the shell of the controller's pod, where configuration agent, slurmctld and slurmdbd are asked."""

_PARTITION = re.compile(r"^PartitionName=(\S+).*? State=(\S+)", re.MULTILINE)


def _listed(text: str) -> tuple[ListedNode, ...]:
    """Each once, of however many partitions it is."""
    found = {row["NodeHost"]: listed_node(row) for row in _LISTED.rows(text, mixed=True)}
    return tuple(node for _, node in sorted(found.items()))


def listed_node(row: Mapping[str, str]) -> ListedNode:
    """A node as sinfo has it. In what others have written there may be whatever moves a cursor."""
    try:
        extra = json.loads(row["Extra"])
    except (ValueError, RecursionError):  # somebody else's text
        extra = {}
    return ListedNode(
        name=printable(row["NodeHost"]),
        state=printable(row["StateLong"]),
        reason="" if row["Reason"] == "none" else row["Reason"],
        since="" if row["Timestamp"] == "Unknown" else row["Timestamp"],
        by="" if row["User"] == "Unknown" else row["User"],
        confinement=str(extra.get(CONFINEMENT, "")) if isinstance(extra, dict) else "",
    )


_READERS: Mapping[str, Callable[[str], Any]] = {
    "clock": float,
    "configuration": configuration_of,
    "room": lambda text: tuple(map(int, text.split()[-2:])),
    "sinfo": _listed,
    "nodes": lambda text: tuple(node_records(text, SlurmNode)),
    "partitions": lambda text: {name: state for name, state in _PARTITION.findall(text) if state != "UP"},
}


def questions(wanted: Wanted) -> tuple[dict[str, str], dict[str, str]]:
    """The questions to Slurm that are put first, and then."""
    known = {**_QUESTIONS, "jobs": wanted.jobs.shell}
    return {name: known[name] for name in wanted.first}, {name: known[name] for name in wanted.then}


def ask_slurm(
    kubectl: Kubectl, namespace: str, wanted: Wanted, *, accounting: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    """The parts of the Snapshot that Slurm knows, and why some are missing. Nothing is raised."""
    first, then = questions(wanted)
    answers, done = put(kubectl, namespace, first, then, seconds=wanted.seconds, each=wanted.each, slurmdbd=accounting)
    if not answers:
        why = brief(complaint(done))
        refused = f"not allowed to run commands in its pod; {LOG_IN}"
        return {}, {"slurm": refused if "forbidden" in why else why}
    return read_answers(answers, wanted)


def read_answers(answers: Mapping[str, tuple[int, str]], wanted: Wanted) -> tuple[dict[str, Any], dict[str, str]]:
    """What the answers say."""
    parts: dict[str, Any] = {}
    unread: dict[str, str] = {}
    readers: dict[str, Callable[[str], Any]] = {**_READERS, "jobs": lambda text: tuple(wanted.jobs.read(text))}
    code, output = answers.get(wanted.first[-1], (LATE, ""))
    silent = ""
    if code:
        without, munge = answers.get("munge", (0, ""))
        silent = output or (f"munge does not answer. {munge}" if without else f"no answer within {wanted.each:g} s")
    for name in (*wanted.first, *wanted.then):
        status, text = answers.get(name, (None, ""))
        if name not in readers or (silent and status != 0):
            continue
        if status == 0:
            try:
                parts[name] = readers[name](text)
            except Exception:  # noqa: BLE001  whatever it has printed: the other answers count all the same
                unread[name] = "the answer is not understood"
        elif status in {LATE, None}:
            unread[name] = f"no answer within {wanted.each if status else wanted.seconds:g} s"
        else:
            unread[name] = f"exit status {status}"
    database = answers[DATABASE][0] == 0 if DATABASE in answers else None
    return {"slurmctld": brief(silent), "slurmdbd_answers": database, **parts}, unread


_REFUSED = re.compile(r"\): ([a-z]+)(?:\.[a-z0-9.]+)?(?: \S+)? is forbidden")
"""What kubectl complains of a kind that these credentials may not see."""


def read_objects(
    kubectl: Kubectl, namespace: str, kinds: Sequence[str], *, seconds: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The objects of these kinds, as far as these credentials may see them, and by part why others are missing."""
    asked = {kind: KINDS[kind][0] for kind in kinds}
    # Of namespaces only its own, by its name: that is all that rights in it allow.
    options = {"events": ("--field-selector=type=Warning",), "namespaces": (namespace, "--ignore-not-found")}
    words = (",".join(asked.values()).lower(), "-n", namespace, *options.get(kinds[0], ()))
    done = kubectl.run("get", *words, "-o", "json", check=False, seconds=seconds)
    try:
        answer = understood(done.stdout) if done.stdout.strip() else {"items": []}
        found: list[dict[str, Any]] = answer.get("items", [answer])
    except Failure as failure:  # a proxy's page, say
        return [], {KINDS[kind][1]: failure.message for kind in kinds}
    if done.returncode == 0:
        return found, {}
    why, there = "not allowed", {item["kind"] for item in found}
    missing = set(_REFUSED.findall(done.stderr)) & asked.keys()
    if not missing:
        why = brief(message(done.stderr)) or "kubectl failed without a word"
        missing = {kind for kind in kinds if asked[kind] not in there}
    return found, {KINDS[kind][1]: why for kind in kinds if kind in missing}
