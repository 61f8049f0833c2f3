"""One call in the controller's pod with all questions to Slurm, and its answers as facts."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from cli.doctor.cluster.facts import Ending, Job, SlurmNode
from cli.health.nodes import parse_nodes as parse_checked
from cli.kubectl.client import Kubectl, complaint
from cli.kubectl.questions import put
from cli.safety.queue import FIELDS, SEPARATOR, parse_jobs
from cli.status.configuration import STATE_FILE
from images.common.hostlist import expand
from images.common.slurm_records import Columns, entries_in, number_of, states_of, text_of
from images.health.nodes import document
from images.health.slurm import parse_nodes

SECONDS = 3
"""For all answers together. What has answered by then counts."""

_EACH = 2
"""Seconds for one question."""

_REASONS = ("JobArrayID", "Reason", "Dependency", "RestartCnt", "QOS", "Account", "Reservation", "StartTime")
_TRES = ("tres-per-node", "tres-per-job", "tres-per-task", "Licenses")
_ENDING = ("JobArrayID", "UserName", "NodeList", "EndTime")
REASONS = Columns((*_REASONS, *_TRES))
"""An account may be any text, with tabs and line breaks: nobody may write another job's record."""

_WHOLE = "SLURM_BITSTR_LEN=0 squeue --all --noheader"
"""Without the variable the tasks of an array are cut off after 64 characters."""

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
    "queue": f"{_WHOLE} --format='{SEPARATOR.join(FIELDS)}'",
    "reasons": f"{_WHOLE} '{REASONS.option}'",
    "completing": f"{_WHOLE} --states=completing -O '{','.join(f'{name}:{SEPARATOR}' for name in _ENDING)}'",
    "licenses": "scontrol show licenses --oneliner",
    "details": f"{_WHOLE} --states=pending --format='%i{SEPARATOR}%R'",
    "partitions": "scontrol show partitions --oneliner",
    "statistics": "sdiag",
}
"""What is asked where slurmctld has answered at all: else each would wait in vain."""

_PAST = "sacct --noheader --parsable2 -X --format=State,ExitCode,NodeList,Start,End,Reason --jobs="
_NAMES = {
    "queue": "jobs",
    "reasons": "jobs",
    "details": "jobs",
    "completing": "jobs",
    "statistics": "load",
    "past": "accounting",
}


def ask_slurm(kubectl: Kubectl, namespace: str, *, accounting: bool, job: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The parts of the facts that Slurm knows, and why some are missing. `job`: one that is asked about, or none."""
    then = questions(accounting=accounting, job=job)
    answers, done = put(kubectl, namespace, FIRST, then, seconds=SECONDS, each=_EACH, slurmdbd=accounting)
    if not answers:
        why = " ".join(complaint(done).split())[:200]
        return {}, {"slurm": "not allowed to run commands in controller-0" if "forbidden" in why else why}
    parts, unread = parse(answers)
    # One that nobody knows is told from one that nobody could be asked about. sacct complains of no unknown job.
    if "job" in then and answers.get("job", (_LATE, ""))[0] == _LATE and not parts.get("slurmctld"):
        unread.setdefault("jobs", "no answer")
    if "past" in then and answers.get("past", (_LATE, ""))[0] and not parts.get("slurmctld"):
        unread.setdefault("accounting", "no answer")
    return parts, unread


def questions(*, accounting: bool, job: str) -> dict[str, str]:
    """What is asked where slurmctld has answered. The job's number is checked by whoever asks."""
    then = dict(_THEN)
    if job:
        then["job"] = f"scontrol show job {job} --json"
    if job and accounting:
        then["past"] = _PAST + job
    return then


def parse(answers: Mapping[str, tuple[int, str]]) -> tuple[dict[str, Any], dict[str, str]]:
    """The parts of the facts in these answers, and why the others are missing."""
    parts: dict[str, Any] = {}
    unread: dict[str, str] = {}
    code, said = answers.get("slurmctld", (124, ""))
    if code:
        without, munge = answers.get("munge", (0, ""))
        said = said or (f"munge does not answer. {munge}" if without else f"no answer within {_EACH} s")
        parts["slurmctld"] = " ".join(said.split())[:300]
    for name, parser in _parsers(_clock(answers)).items():
        if name not in answers:
            if not code and name not in {"job", "past", "database"}:
                unread[_NAMES.get(name, name)] = f"no answer within {SECONDS} s"
            continue
        status, text = answers[name]
        if status and name != "database":
            if name not in {"job", "past"}:
                unread[_NAMES.get(name, name)] = "no answer" if status == _LATE else f"exit status {status}"
            continue
        try:
            parts |= parser(text if name != "database" else str(status))
        except Exception:  # noqa: BLE001  whatever it has printed: the other answers count all the same
            unread[_NAMES.get(name, name)] = "the answer is not understood"
    jobs = parts.pop("queue", None)
    if jobs is not None:
        reasons, details = parts.pop("reasons", {}), parts.pop("details", {})
        parts["jobs"] = tuple(
            Job(queued=job, detail=details.get(job.id, ""), **reasons.get(job.id, {})) for job in jobs
        )
    return {name: value for name, value in parts.items() if name not in {"reasons", "details"}}, unread


_LATE = 124
_KEYS = ("reason", "dependency", "restarts", "qos", "account", "reservation", "starts")


def _reasons(text: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in REASONS.rows(text):
        plain = {name: "" if value in {"N/A", "None"} else value for name, value in row.items()}
        id_, *rest = (plain[name] for name in _REASONS)
        values = dict(zip(_KEYS, rest, strict=True))
        node, job, task, licenses = (plain[name] for name in _TRES)
        found[id_] = {
            **values,
            "node_gpus": max(_gpus(node), _gpus(task)),
            "job_gpus": _gpus(job),
            "licenses": licenses,
            "restarts": int(values["restarts"]) if values["restarts"].isdecimal() else 0,
        }
    return found


def _gpus(text: str) -> int:
    """In a request, `gres/gpu:a100:2,gres/gpu:1`, or a node's `gpu:a100:2(S:0-1)`. A part of a GPU counts as one."""
    words = [re.sub(r"^gres[/:]", "", word) for word in re.sub(r"\(.*?\)", "", text).split(",")]
    counts = [re.split(r"[:=]", word)[1:] for word in words if re.fullmatch(r"gpu([:=].*)?", word)]
    return sum(int(parts[-1]) if parts and parts[-1].isdecimal() else 1 for parts in counts)


def _completing(text: str, now: float) -> tuple[Ending, ...]:
    lines = [line.split(SEPARATOR) for line in text.splitlines()]
    return tuple(
        Ending(id=id_, user=user, nodes=expand(nodes), seconds=now - datetime.fromisoformat(end + "Z").timestamp())
        for id_, user, nodes, end, *_ in lines
    )


def _licenses(text: str) -> dict[str, int]:
    found = re.findall(r"LicenseName=(\S+)\s+Total=(\d+)", text)
    return {name: int(total) for name, total in found}


def _details(text: str) -> dict[str, str]:
    lines = (line.partition(SEPARATOR) for line in text.splitlines())
    return {id_: detail.strip().removeprefix("(").removesuffix(")") for id_, _, detail in lines}


def _nodes(text: str, now: float) -> tuple[SlurmNode, ...]:
    records = {record.name: record for record in parse_nodes(text)}
    entries = {text_of(entry.get("name")): entry for entry in entries_in(text, "nodes")}
    checked = parse_checked(json.dumps(document(records.values(), now)))
    return tuple(
        SlurmNode(
            name=node.name,
            states=states_of(entries[node.name].get("state")),
            reason=node.reason,
            reason_by=text_of(entries[node.name].get("reason_set_by_user")),
            reason_at=records[node.name].reason_at or 0.0,
            partitions=records[node.name].partitions,
            cpus=int(number_of(entries[node.name].get("cpus")) or 0),
            memory=int(number_of(entries[node.name].get("real_memory")) or 0),
            gpus=records[node.name].gpus,
            all_gpus=_gpus(text_of(entries[node.name].get("gres"))),
            features=frozenset(filter(None, records[node.name].pool.split(","))),
            checked=node,
        )
        for node in checked.nodes
    )


def _partitions(text: str) -> dict[str, str]:
    """Those that are not simply up."""
    found = re.findall(r"^PartitionName=(\S+).*? State=(\S+)", text, re.MULTILINE)
    return {name: state for name, state in found if state != "UP"}


def _statistics(text: str) -> dict[str, int]:
    def number(label: str) -> int:
        found = re.search(rf"^{label}:\s*(\d+)", text, re.MULTILINE)
        return int(found[1]) if found else 0

    return {"records_waiting": number("DBD Agent queue size"), "threads": number("Server thread count")}


def _clock(answers: Mapping[str, tuple[int, str]]) -> float:
    said = answers.get("clock", (1, ""))[1]
    return float(said) if said.isdecimal() else 0.0


def _parsers(clock: float) -> dict[str, Callable[[str], dict[str, Any]]]:
    return {
        "clock": lambda _: {"clock": clock},
        "configuration": lambda text: {"configuration": dict(json.loads(text))},
        "nodes": lambda text: {"nodes": _nodes(text, clock or time.time())},
        "queue": lambda text: {"queue": parse_jobs(text)},
        "reasons": lambda text: {"reasons": _reasons(text)},
        "details": lambda text: {"details": _details(text)},
        "completing": lambda text: {"completing": _completing(text, clock or time.time())},
        "licenses": lambda text: {"licenses": _licenses(text)},
        "partitions": lambda text: {"partitions": _partitions(text)},
        "statistics": _statistics,
        "job": lambda text: {"job": next(iter(entries_in(text, "jobs")), None)},
        "past": lambda text: {"past": tuple(text.splitlines()[-1].split("|")) if text else ()},
        "database": lambda code: {"slurmdbd_answers": code == "0"},
    }
