"""What somebody asks of the records, and the question to slurmdbd, through sacct in the controller's pod."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cli.errors import USAGE, Failure
from cli.kubectl.client import (
    NO_SLURMDBD,
    SILENT_SLURMDBD,
    Kubectl,
    complaint,
    hint_after,
    in_controller,
    slurmdbd_answers,
)
from config.cluster import ClusterConfig
from images.common.slurm_runs import RecordError, Run, parse_runs, runs_between

_DISABLED = "accounting storage is disabled"
_AWAY = (
    "`slurmstack status` shows whether controller-0, slurmdbd-0 and the database run. Jobs go on without them, and "
    "what they used is recorded when they are back"
)

_LONGEST = 600
"""Seconds: the records of years may rightly take minutes."""


def dimensions_of(by: str, known: Sequence[str]) -> tuple[str, ...]:
    """`account,user` as a tuple. Raises Failure for anything else than names that are known."""
    names = tuple(name.strip() for name in by.split(","))
    for name in names:
        if name not in known:
            message = f"--by {by!r}: {name!r} is none of {', '.join(known)}"
            raise Failure(message, hint="several: account,user", code=USAGE)
    return names


def refuse_without_accounting(config: ClusterConfig) -> None:
    """Raises Failure where nothing is recorded."""
    if not config.accounting.enabled:
        raise Failure(
            "this cluster records nothing: accounting.enabled is false in the stack file",
            hint="set it to true and apply; jobs are recorded from then on",
            code=USAGE,
        )


def read_runs(kubectl: Kubectl, namespace: str, start: datetime, end: datetime, *, whole: bool = False) -> list[Run]:
    """Runs of jobs between two times, as `runs_between` has them. Raises Failure."""
    return ask_sacct(kubectl, namespace, runs_between(start, end, whole=whole))


def ask_sacct(kubectl: Kubectl, namespace: str, command: Sequence[str]) -> list[Run]:
    """The runs that a call of sacct in the controller's pod prints. Raises Failure with sacct's own message."""
    done = slurmdbd_answers(kubectl, namespace)  # what does not even answer this is not waited for
    if done.returncode == 0:
        done = in_controller(kubectl, namespace, *command, seconds=_LONGEST)
    if done.returncode == NO_SLURMDBD:
        raise Failure(f"the records cannot be read: {SILENT_SLURMDBD}", hint=_AWAY)
    if done.returncode != 0:
        why = complaint(done)
        hint = _AWAY if _DISABLED not in why else "the cluster was applied without it; `slurmstack up` turns it on"
        raise Failure(f"sacct could not read the records: {why}", hint=hint_after(why, hint))
    try:
        return parse_runs(done.stdout.removesuffix("\n").split("\n"))
    except RecordError as error:
        raise Failure(str(error)) from error
