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


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What the started daemons show."""

    jobs: Mapping[int, tuple[int, str]]
    """Job id -> user id, state, as squeue has them."""
    answered: Collection[int] | None
    """Ids of the last records that slurmdbd has answered with; None without accounting."""


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

    @property
    def ok(self) -> bool:
        """Whether the backup was put back as a whole."""
        return not self.problems

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "backup": self.backup,
            "slurm": self.version,
            "ok": self.ok,
            "seconds": {name: round(taken, 1) for name, taken in self.seconds.items()},
            "found": self.found,
            "problems": self.problems,
        }


def told_by(written: str) -> dict[str, dict[str, Any]]:
    """What the containers of the restore have told, by the part."""
    found = [json.loads(line.removeprefix(MARK)) for line in written.splitlines() if line.startswith(MARK)]
    return {item.pop("part"): item for item in found}


def judge(outcome: Outcome, told: Mapping[str, Mapping[str, Any]], shown: Shown) -> None:
    """Compare, and write into the outcome what was found. `told`: by part, as images/backup/restore.py tells it."""
    state, database, jail = (told.get(part) for part in ("state", "database", "jail"))
    if state is not None:
        _judge_queue(outcome, state, database, shown)
    if database is not None:
        _judge_records(outcome, database, shown)
    if jail is not None:
        outcome.found["jail"] = {"files": jail["files"], "bytes": jail["bytes"], "different": jail["different"]}
        if jail["different"]:
            outcome.problems.append(
                "; ".join((f"jail: {jail['different']} files are not as they were", *jail["named"]))
            )
        if not jail["files"]:
            outcome.problems.append("jail: the backup has no files of it")


def _judge_queue(outcome: Outcome, state: Mapping[str, Any], database: Mapping[str, Any] | None, shown: Shown) -> None:
    outcome.found["state"] = {"jobs": sum(word not in _ENDED for _, word in shown.jobs.values())}
    if database is None:
        return
    # What was submitted later came between the two parts of the backup. slurmctld saves when something has changed.
    until = max(state["saved"], _begun(outcome.backup) - _SAVED_WITHIN)
    known = [record for record in database["open"] if record[3] < until]
    outcome.found["state"]["compared"] = len(known)
    gone = [(job, array) for job, array, *_ in known if job not in shown.jobs]
    scripts = set(state["scripts"])
    if missing := [job for job, array in gone if {job, array} & scripts]:
        outcome.problems.append(f"state: slurmctld has lost jobs of the queue: {_listed(missing)}")
    if strange := [job for job, _, user, _ in known if shown.jobs.get(job, (user,))[0] != user]:
        outcome.problems.append(f"state: jobs belong to other users than accounting says: {_listed(strange)}")


def _begun(backup: str) -> int:
    """When a backup was begun, in seconds since 1970."""
    return int(datetime.strptime(backup, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp())


def _judge_records(outcome: Outcome, database: Mapping[str, Any], shown: Shown) -> None:
    newest = set(database["newest"])
    outcome.found["database"] = {"records": database["records"], "asked": len(newest)}
    lost = sorted(newest - set(shown.answered or ()))
    if lost:
        outcome.problems.append(f"database: slurmdbd does not know records of jobs: {_listed(lost)}")


_ENDED: Final = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
})  # fmt: skip


def _listed(jobs: Sequence[int]) -> str:
    more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
    return ", ".join(map(str, jobs[:_NAMED])) + more


def text(outcome: Outcome) -> str:
    """For people."""
    found, took = outcome.found, outcome.seconds
    end = "is as it was" if outcome.ok else "is NOT as it was"
    lines = [f"backup {outcome.backup} under Slurm {outcome.version} {end} ({duration_text(took['total'])})"]
    if "state" in found:
        lines.append(f"  state     {found['state']['jobs']} jobs in the queue")
    if "database" in found:
        counted = f"{found['database']['records']} records, the last {found['database']['asked']} asked of slurmdbd"
        lines.append(f"  database  {counted}")
    if "jail" in found:
        lines.append(f"  jail      {found['jail']['files']} files and directories")
    lines += [
        f"  {name} answered after {duration_text(took[name])}" for name in ("slurmdbd", "slurmctld") if name in took
    ]
    return "\n".join([*lines, *(f"  problem: {line}" for line in outcome.problems)])
