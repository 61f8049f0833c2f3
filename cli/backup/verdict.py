"""Whether what a rehearsal has started is what the backup has: pure comparison, and its words."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from local.report import duration_text

MARK: Final = "rehearsal: "
"""Beginning of a line in which a container tells of its part (images/backup/restore.py)."""

_SAVED_WITHIN: Final = 10
"""Seconds after which slurmctld has saved a job that it has accepted: it does so within five."""

_NAMED: Final = 10
"""Job ids in one message."""


@dataclass
class Outcome:
    """How a rehearsal ended."""

    backup: str
    version: str
    """Release of Slurm that it ran with."""
    seconds: dict[str, float] = field(default_factory=dict)
    """What steps took: until slurmdbd and slurmctld answered, and the total."""
    found: dict[str, dict[str, int]] = field(default_factory=dict)
    """Part -> what was counted."""
    problems: list[str] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "backup": self.backup,
            "slurm": self.version,
            "ok": not self.problems,
            "seconds": {name: round(taken, 1) for name, taken in self.seconds.items()},
            "found": self.found,
            "problems": self.problems,
        }


def told_by(written: str) -> dict[str, dict[str, Any]]:
    """What the containers of the restore have told, by the part."""
    found = [json.loads(line.removeprefix(MARK)) for line in written.splitlines() if line.startswith(MARK)]
    return {item.pop("part"): item for item in found}


def judge(
    outcome: Outcome, told: Mapping[str, Mapping[str, Any]], jobs: Collection[int], answered: Collection[int]
) -> None:
    """Compare, and write into the outcome what was found. `told`: by part, as images/backup/restore.py tells it.

    `jobs`: ids of those that slurmctld knows. `answered`: of the last records, those that slurmdbd has answered with.
    """
    outcome.found["state"] = {"jobs": len(jobs)}
    if (database := told.get("database")) is not None:
        outcome.found["database"] = {"records": database["records"], "asked": len(database["newest"])}
        if lost := sorted({*database["newest"]} - {*answered}):
            outcome.problems.append(f"database: slurmdbd does not know records of jobs: {_listed(lost)}")
        # What was submitted later came between the two parts of the backup.
        begun = datetime.strptime(outcome.backup, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        known = [(job, array) for job, array, *_, submitted in database["open"] if submitted < begun - _SAVED_WITHIN]
        outcome.found["state"]["compared"] = len(known)
        scripts = {*told["state"]["scripts"]}
        if missing := [job for job, array in known if job not in jobs and {job, array} & scripts]:
            outcome.problems.append(f"state: slurmctld has lost jobs of the queue: {_listed(missing)}")
    if (jail := told.get("jail")) is not None:
        outcome.found["jail"] = {key: jail[key] for key in ("files", "bytes", "different")}
        if jail["different"] or not jail["files"]:
            what = f"jail: {jail['different']} of {jail['files']} files are not as they were"
            outcome.problems.append("; ".join((what, *jail["named"])))


def _listed(jobs: Sequence[int]) -> str:
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    return ", ".join(map(str, jobs[:_NAMED])) + more


def text(outcome: Outcome) -> str:
    """For people."""
    end = "is NOT as it was" if outcome.problems else "is as it was"
    took = {name: duration_text(seconds) for name, seconds in outcome.seconds.items()}
    return "\n".join([
        f"backup {outcome.backup} under Slurm {outcome.version} {end} ({took.pop('total')})",
        *(
            f"  {part:<9} {', '.join(f'{number} {what}' for what, number in counted.items())}"
            for part, counted in outcome.found.items()
        ),
        *(f"  {name} answered after {taken}" for name, taken in took.items()),
        *(f"  problem: {line}" for line in outcome.problems),
    ])  # fmt: skip
