"""Doctor's questions to Slurm, in one call in the controller's pod, and the answers as parts of the facts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from cli.doctor.cluster.facts import SlurmNode
from cli.health.nodes import in_order
from cli.kubectl.client import Kubectl
from cli.status.slurm import STATE_FILE, Said, ask, configuration_of
from images.common.slurm_jobs import ENDED, JobList
from images.common.slurm_records import entries_in, node_records

SECONDS = 3
"""For all answers together. What has answered by then counts."""

EACH = 2
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
"""Slurm tries munge for longer than a question may take, and then names it: so it is asked itself."""

_THEN = {
    "nodes": "scontrol show nodes --json",
    "queue": JOBS.shell,
    "partitions": "scontrol show partitions --oneliner",
}

_PAST = "sacct --noheader --parsable2 -X --format=State,ExitCode,NodeList,Start,End,Reason --jobs="

_PARTITION = re.compile(r"^PartitionName=(\S+).*? State=(\S+)", re.MULTILINE)

READERS: Mapping[str, Callable[[str], Any]] = {
    "clock": float,
    "configuration": configuration_of,
    "nodes": lambda text: node_records(text, SlurmNode),
    "queue": lambda text: tuple(job for job in JOBS.read(text) if job.state != ENDED),
    "partitions": lambda text: {name: state for name, state in _PARTITION.findall(text) if state != "UP"},
    "job": lambda text: next(iter(entries_in(text, "jobs")), None),
    "past": lambda text: tuple(text.splitlines()[-1].split("|")) if text else (),
}

_PARTS = {"queue": "jobs", "job": "jobs", "past": "accounting"}
"""Question -> the part of the facts that is missing without an answer, where that is called otherwise."""


def ask_slurm(kubectl: Kubectl, namespace: str, *, accounting: bool, job: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The parts of the facts that Slurm knows, and why some are missing. `job`: one that is asked about, or none."""
    then = questions(accounting=accounting, job=job)
    said = ask(kubectl, namespace, FIRST, then, READERS, seconds=SECONDS, each=EACH, accounting=accounting)
    return parts_of(said) if said.reached else ({}, {"slurm": said.slurmctld})


def questions(*, accounting: bool, job: str) -> dict[str, str]:
    """What is asked where slurmctld has answered. The job's number is checked by whoever asks."""
    of_job = {"job": f"scontrol show job {job} --json"} if job else {}
    return {**_THEN, **of_job, **({"past": _PAST + job} if job and accounting else {})}


def parts_of(said: Said) -> tuple[dict[str, Any], dict[str, str]]:
    """The parts of the facts in these answers, and why the others are missing."""
    parts = {"slurmctld": said.slurmctld, "slurmdbd_answers": said.slurmdbd_answers, **said.parts}
    if "queue" in parts:
        parts["jobs"] = parts.pop("queue")
    now = parts.get("clock") or time.time()
    nodes = (replace(node, now=now) for node in parts.get("nodes", ()))
    parts["nodes"] = tuple(sorted(nodes, key=lambda node: in_order(node.name)))
    # scontrol refuses a job that slurmctld knows no longer: that is an answer, too.
    unread = {name: why for name, why in said.unread.items() if name != "job" or why.startswith("no answer")}
    return parts, {_PARTS.get(name, name): why for name, why in unread.items()}
