"""Errors in the logs of a job's nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cli.kubectl.client import Kubectl
from cli.logs.lines import LISTED, Line, containers, names_job, read_logs
from cli.status.snapshot import KnownJob
from images.common.slurm_jobs import RUNNING
from images.common.slurm_records import moment

_SECONDS_OF_NODE = 5
"""For one where an answer to a question waits for it."""

_BEFORE = timedelta(minutes=1)
"""So long before a job began slurmd's word about it may be: clocks of machines differ."""

_LAUNCHED = re.compile(r"(?:Launching batch .* for|launch task .* request from) UID[ :](\d+)")
_NAMELESS = re.compile(r"error: (?:(?:.*\buid=|Invalid job cred.* from )(\d+)|Munge decode|.*_LAUNCH.* auth\w+ error)")
"""slurmd names a job with its user; the user alone where the node does not know him, or gets the job too late; nobody
where it cannot read what it gets, as where clocks are minutes apart."""


def errors_on_nodes(
    kubectl: Kubectl, namespace: str, pods: Iterable[Mapping[str, Any]], known: KnownJob
) -> tuple[str, ...]:
    """What slurmd and slurmstepd say went wrong with a job, on its first nodes; and whose log could not be read.

    Nothing of one that runs. A lost node, for which many a job is asked about, has a log that nobody can read.
    """
    if any(job.base_state == RUNNING for job in known.present):
        return ()
    names = names_job(known.ids)
    wanted = [item for item in containers(pods) if item.name == "slurmd" and item.pod in known.nodes][:LISTED]
    began = min((at for run in known.runs if (at := moment(run["Start"])) is not None), default=None)
    found = read_logs(
        kubectl, namespace, wanted,
        since=None if began is None else datetime.fromtimestamp(began, UTC) - _BEFORE,
        matches=lambda text: names(text) or _NAMELESS.search(text) is not None,
        seconds=_SECONDS_OF_NODE,
    )  # fmt: skip
    heard = [line for line in found.lines if names(line.text)]
    users = {match[1] for line in heard if (match := _LAUNCHED.search(line.text))}
    places = {line.place for line in heard}

    def is_about(line: Line) -> bool:
        other = _NAMELESS.search(line.text)
        return names(line.text) or (other is not None and (other[1] in users if other[1] else line.place not in places))

    lines = [line for line in found.lines if "error: " in line.text and is_about(line)]
    errors = (f"{line.place.partition('/')[0]}: {line.text.partition('error: ')[2]}" for line in lines)
    return (*dict.fromkeys(errors), *(f"the log of {item}" for item in found.missing))
