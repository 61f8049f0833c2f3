"""The reason of a drain that the watcher sets, and how it knows its own again.

`health/<check> [<class>]: <message>`. Whoever else drains for a check and wants the watcher to lift it when the check
is well again writes the same: the prolog, a test that runs as a job.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from images.common.health.contract import FaultClass, Result, Status
from images.common.health.report import FAULTS, one_line

NEW_MACHINE: Final = "new-machine"
"""The check that keeps a node drained until the tests of nodes have measured it (`node_tests/apart.py`)."""

_OWN: Final = re.compile(r"health/(?P<check>[a-z0-9][a-z0-9-]*)(?: \[(?P<fault>user|node|hardware)\])?(?::|$)")


@dataclass(frozen=True, kw_only=True)
class Own:
    """What a reason of ours says."""

    check: str
    fault: FaultClass


def reason_for(check: str, result: Result) -> str:
    """The reason to drain a node for a failed check."""
    return f"health/{check} [{result.fault or 'node'}]: {one_line(result.message)}".rstrip()


def lifted(reason: str) -> str:
    """What takes the place of a reason when its drain is lifted.

    Slurm clears the reason of a node that is idle then; on a busy one it stays until the next job starts there, and
    if slurmctld drains it meanwhile (a step that cannot be killed) it keeps that text (24.11 and 26.05, `_drain_node`).
    Such a drain must not look like ours.
    """
    own = parse(reason)
    return f"lifted: health/{own.check}" if own else "lifted"


def to_be_measured(reason: str) -> str:
    """What takes the place of a reason when all is well again, and the node may be another machine than before."""
    own = parse(reason)
    return as_new_machine(f"measured before jobs start here; {own.check if own else 'what it was drained for'} is well")


def as_new_machine(message: str) -> str:
    """The reason of a node that is to be measured."""
    return reason_for(NEW_MACHINE, Result(status=Status.FAIL, fault="node", message=message))


def parse(reason: str) -> Own | None:
    """What a reason says if it is one of ours; None for any other, which means: leave the node alone."""
    match = _OWN.match(reason)
    return None if match is None else Own(check=match["check"], fault=FAULTS.get(match["fault"], "node"))


def gravity(fault: FaultClass | None) -> int:
    """The higher the graver."""
    return list(FAULTS).index(fault or "node")
