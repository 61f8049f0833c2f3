"""One call in the controller's pod with all questions to Slurm, and its answers as facts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cli.doctor.cluster.facts import SlurmNode
from cli.health.nodes import in_order
from cli.kubectl.client import Kubectl, complaint
from cli.kubectl.pods import DATABASE, put
from cli.status.slurm import LATE, STATE_FILE
from images.common.slurm_jobs import ENDED, JobList
from images.common.slurm_records import entries_in, node_records

SECONDS = 3
"""For all answers together. What has answered by then counts."""

_EACH = 2
"""Seconds for one question."""

JOBS = JobList(
    "id", "user", "account", "qos", "partitions", "state", "reason", "detail", "node_list", "left", "start",
)  # fmt: skip

FIRST = {
    "clock": "date +%s",
    "configuration": f"cat {STATE_FILE}",
    "munge": "timeout 1 sh -c 'munge -n | unmunge' 2>&1 >/dev/null",
    "slurmctld": "sinfo --noheader --format=%R 2>&1",
}
"""The last one decides whether more is asked. Slurm tries munge for longer than a question may take, and then names it:
so it is asked itself."""

_THEN = {
    "nodes": "scontrol show nodes --json",
    "queue": JOBS.shell,
    "partitions": "scontrol show partitions --oneliner",
}
"""What is asked where slurmctld has answered at all: else each would wait in vain."""

_PAST = "sacct --noheader --parsable2 -X --format=State,ExitCode,NodeList,Start,End,Reason --jobs="

_PARTITION = re.compile(r"^PartitionName=(\S+).*? State=(\S+)", re.MULTILINE)

_PARTS = {"queue": "jobs", "past": "accounting"}
"""Question -> the part of the facts that is missing without an answer, where that is called otherwise."""

_ASKED_OF_ONE = ("job", "past")
"""Questions about the one job that is asked about. Slurm refuses them for a job that it does not know."""


def ask_slurm(kubectl: Kubectl, namespace: str, *, accounting: bool, job: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The parts of the facts that Slurm knows, and why some are missing. `job`: one that is asked about, or none."""
    then = questions(accounting=accounting, job=job)
    answers, done = put(kubectl, namespace, FIRST, then, seconds=SECONDS, each=_EACH, slurmdbd=accounting)
    if not answers:
        why = " ".join(complaint(done).split())[:200]
        return {}, {"slurm": "not allowed to run commands in controller-0" if "forbidden" in why else why}
    parts, unread = parse(answers)
    # One that nobody knows is told from one that nobody could be asked about. sacct complains of no unknown job.
    if not parts.get("slurmctld"):
        if "job" in then and answers.get("job", (LATE, ""))[0] == LATE:
            unread.setdefault("jobs", "no answer")
        if "past" in then and answers.get("past", (LATE, ""))[0]:
            unread.setdefault("accounting", "no answer")
    return parts, unread


def questions(*, accounting: bool, job: str) -> dict[str, str]:
    """What is asked where slurmctld has answered. The job's number is checked by whoever asks."""
    of_job = {"job": f"scontrol show job {job} --json"} if job else {}
    return {**_THEN, **of_job, **({"past": _PAST + job} if job and accounting else {})}


def parse(answers: Mapping[str, tuple[int, str]]) -> tuple[dict[str, Any], dict[str, str]]:
    """The parts of the facts in these answers, and why the others are missing."""
    said = answers.get("clock", (1, ""))[1]
    clock = float(said) if said.isdecimal() else 0.0
    parts: dict[str, Any] = {"clock": clock}
    unread: dict[str, str] = {}
    code, said = answers.get("slurmctld", (LATE, ""))
    if code:
        without, munge = answers.get("munge", (0, ""))
        said = said or (f"munge does not answer. {munge}" if without else f"no answer within {_EACH} s")
        parts["slurmctld"] = " ".join(said.split())[:300]
    if DATABASE in answers:
        parts["slurmdbd_answers"] = answers[DATABASE][0] == 0
    for name, parser in _parsers(clock or time.time()).items():
        part = _PARTS.get(name, name)
        status, text = answers.get(name, (None, ""))
        if status == 0:
            try:
                parts |= parser(text)
            except Exception:  # noqa: BLE001  whatever it has printed: the other answers count all the same
                unread[part] = "the answer is not understood"
        elif name in _ASKED_OF_ONE:
            continue
        elif status is not None:
            unread[part] = "no answer" if status == LATE else f"exit status {status}"
        elif not code:
            unread[part] = f"no answer within {SECONDS} s"
    return parts, unread


def _parsers(now: float) -> dict[str, Callable[[str], dict[str, Any]]]:
    return {
        "configuration": lambda text: {"configuration": dict(json.loads(text))},
        "nodes": lambda text: {"nodes": _nodes(text, now)},
        "queue": lambda text: {"jobs": tuple(job for job in JOBS.read(text) if job.state != ENDED)},
        "partitions": lambda text: {
            "partitions": {name: state for name, state in _PARTITION.findall(text) if state != "UP"}
        },
        "job": lambda text: {"job": next(iter(entries_in(text, "jobs")), None)},
        "past": lambda text: {"past": tuple(text.splitlines()[-1].split("|")) if text else ()},
    }


def _nodes(text: str, now: float) -> tuple[SlurmNode, ...]:
    nodes = [replace(node, now=now) for node in node_records(text, SlurmNode)]
    return tuple(sorted(nodes, key=lambda node: in_order(node.name)))
