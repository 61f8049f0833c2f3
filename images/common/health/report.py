"""What checks say of a node, as it stands in Slurm: the report in the node's Comment, and the reason of a drain.

    health 2026-11-21T21:55:03Z | ok: disks | fail gpu-presence [hardware]: GPU is lost | not checked dns: no answer

The report is for people who run `scontrol show node`, and for the watcher and `slurmstack health`, which read it back.
A comment that an administrator had set stays, after ` || `. What is not understood of a line is left out: the checks in
it are then unknown, which changes nothing anywhere.

The reason of a drain that the watcher sets is `health/<check> [<class>]: <message>`. Whoever else drains for a check
and wants the watcher to lift it when the check is well again writes the same.

What tests of nodes have found is in the field Extra of the node's record:

    {"health_tests": "2026-11-21T21:55:03Z ok cpu-speed: ... | 2026-11-21T22:01:40Z fail nccl-node [hardware]: ..."}

Each has its own time: they run days apart. Extra is kept by slurmctld over restarts, goes with the node's record, and
its changes are not written to the accounting database (24.11 and 26.05, `update_node`). With
`SchedulerParameters=extra_constraints` Slurm refuses there what is no JSON and lets jobs ask for keys of it: so it is
JSON, and the keys of others stay. A text that is none stays under the key `note`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from images.common.health.contract import FAULTS, Result, Status

SKEW_SECONDS: Final = 5.0
"""How far the clock of a node may be from slurmctld's."""

STALE_SECONDS: Final = 660.0
"""A node with something to complain of reports every 5 minutes. After two of those and a minute nobody knows."""
WELL_STALE_SECONDS: Final = 4020.0
"""The same for one that is well, which reports every 27 to 33 minutes (periodic.py)."""

MESSAGE_LENGTH: Final = 240
"""Characters of one check's message in the line. The whole message is in the pod's log."""

TESTS_KEY: Final = "health_tests"
_WORD: Final = "health"
_NOTE: Final = " || "
_PART: Final = " | "
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_NAME: Final = r"(?P<name>[a-z0-9][a-z0-9-]*)"
_FAULT: Final = r"(?: \[(?P<fault>user|node|hardware)\])?"
# Patterns are compiled where they are used: a run of the checks on a healthy node needs none of them.
_OK: Final = r"ok: (?P<names>[a-z0-9 -]+)"
_LINE: Final = rf"(?P<status>ok|fail|warn|not checked) {_NAME}{_FAULT}:(?: (?P<message>.*))?"
_REASON: Final = rf"health/{_NAME}{_FAULT}(?::|$)"


@dataclass(frozen=True, kw_only=True)
class Report:
    """What the checks of one node found, and when."""

    at: int
    """When the checks began, in seconds since 1970 by the node's clock: what they say is at least as new."""
    results: Mapping[str, Result]
    """By name of the check. What came through Slurm has no `values`, and messages may be shortened."""
    note: str = ""
    """The administrator's own comment."""


def encode(report: Report) -> str:
    """The report as one line, failures first after what is well. Raises nothing."""
    well = sorted(name for name, result in report.results.items() if result.status is Status.OK)
    parts = [f"{_WORD} {stamp(report.at)}"]
    if well:
        parts.append(f"ok: {' '.join(well)}")
    for status in (Status.FAIL, Status.WARN, Status.NOT_CHECKED):
        names = sorted(name for name, result in report.results.items() if result.status is status)
        parts.extend(line_of(name, report.results[name]) for name in names)
    return _PART.join(parts) + (f"{_NOTE}{report.note}" if report.note else "")


def line_of(name: str, result: Result) -> str:
    """One result, as in the line: `fail disks [node]: /jail 97 % used`."""
    fault = f" [{result.fault}]" if result.fault else ""
    return f"{result.status.value} {name}{fault}: {one_line(result.message)}".rstrip()


def one_line(message: str) -> str:
    """A message as it may stand in the line, and in a drain's reason: one line, printable, without `|` and `"`."""
    plain = "".join(character if character.isprintable() else " " for character in message)
    text = " ".join(plain.replace("|", "/").replace('"', "'").split())
    return text if len(text) <= MESSAGE_LENGTH else text[: MESSAGE_LENGTH - 3].rstrip() + "..."


def decode(comment: str) -> Report | None:
    """The report of a Comment; None if there is none in it, which also means that no part of it is ours."""
    line, _, note = comment.partition(_NOTE)
    head, *parts = line.split(_PART)
    word, _, time_ = head.strip().partition(" ")
    at = moment(time_) if word == _WORD else None
    if at is None:
        return None
    return Report(at=at, results={name: result for part in parts for name, result in results_in(part)}, note=note)


def note_of(comment: str) -> str:
    """What an administrator has written into a Comment: all of it, where there is no report."""
    report = decode(comment)
    return comment.strip() if report is None else report.note.strip()


def stamp(at: float) -> str:
    """Seconds since 1970 as people and Kubernetes read them: `2026-11-21T21:55:03Z`."""
    return time.strftime(_TIME, time.gmtime(at))


def moment(text: str) -> int | None:
    """And back; None if that is no time."""
    try:
        at = int(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError):
        return None
    return at if text == stamp(at) else None


def results_in(part: str) -> Iterator[tuple[str, Result]]:
    """What `line_of` has made of a result; or several that are well, `ok: disks dns`."""
    part = part.strip()
    if match := re.fullmatch(_OK, part):
        for name in match["names"].split():
            yield name, Result(status=Status.OK)
    elif match := re.fullmatch(_LINE, part):
        fault = FAULTS.get(match["fault"] or "")
        yield match["name"], Result(status=Status(match["status"]), message=match["message"] or "", fault=fault)


def gists(results: Mapping[str, Result]) -> dict[str, str]:
    """Status and fault. A change of it is told at once; of a message, which may have figures that move, in time."""
    return {name: f"{result.status.value}|{result.fault or ''}" for name, result in results.items()}


def changes(old: Mapping[str, str], results: Mapping[str, Result]) -> list[str]:
    """What the log says about results: a line for each that is not what it was. `old`: the gists of the last ones."""
    lines = []
    for name, gist in sorted(gists(results).items()):
        before, after = old.get(name), results[name]
        if before == gist:
            continue
        if after.status is not Status.OK:
            lines.append(line_of(name, after))
        elif before is not None:
            lines.append(f"ok {name}: it was {before.partition('|')[0]}")
    return lines


# ---------------------------------------------------------------- the reason of a drain


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
    return f"lifted: health/{own}" if own else "lifted"


def parse(reason: str) -> str | None:
    """The check of a reason that is one of ours; None for any other, which means: leave the node alone."""
    match = re.match(_REASON, reason)
    return None if match is None else match["name"]


# ---------------------------------------------------------------- how long it holds


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check says about a node."""

    result: Result
    at: float
    """When it looked, in seconds since 1970, by its own clock."""
    declared: bool = False
    """Somebody wants the node free of jobs and said so. No limit holds that back, unless it is a condition that says so
    (`unwanted_since`): programs set these, and may set them on all machines at once."""
    lost: bool = False
    """The machine is gone: its jobs are to start elsewhere now."""
    unwanted_since: float | None = None
    """Since when a condition that the site has named (maintenance) wants the machine away, in seconds since 1970; None:
    none does."""

    def is_fresh(self, now: float) -> bool:
        """Whether it says something about now."""
        return now - self.at <= (WELL_STALE_SECONDS if self.result.status is Status.OK else STALE_SECONDS)

    def clears(self, drained_at: float | None, now: float) -> bool:
        """Whether it says that jobs can run, having looked after the drain: a warning would not have drained either."""
        if drained_at is None or self.result.status not in {Status.OK, Status.WARN} or not self.is_fresh(now):
            return False
        return drained_at + SKEW_SECONDS < self.at <= now + SKEW_SECONDS


# ---------------------------------------------------------------- tests of nodes


def measured_in(extra: str) -> dict[str, Finding]:
    """The last results of tests in a node's Extra, by test. What is not understood of it is left out."""
    found: dict[str, Finding] = {}
    line = _object(extra).get(TESTS_KEY)
    for part in line.split(_PART) if isinstance(line, str) else []:
        time_, _, text = part.strip().partition(" ")
        at = moment(time_)
        if at is not None:
            found |= {name: Finding(at=at, result=result) for name, result in results_in(text)}
    return found


def with_measured(extra: str, found: Mapping[str, Finding]) -> str:
    """The Extra with these results in place of the ones that it had."""
    lines = (f"{stamp(one.at)} {line_of(name, one.result)}" for name, one in sorted(found.items()))
    return json.dumps({**_object(extra), TESTS_KEY: _PART.join(lines)})


def _object(extra: str) -> dict[str, Any]:
    try:
        content = json.loads(extra)
    except ValueError:
        content = None
    if isinstance(content, dict):
        return content
    return {"note": extra.strip()} if extra.strip() else {}
