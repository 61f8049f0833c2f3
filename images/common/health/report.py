"""A node's results as one line in Slurm: the Comment of the node's record.

    health 2026-11-21T21:55:03Z | ok: clock disks | fail gpu-xid [hardware]: GPU 3: Xid 79 | not checked dns: no answer

For people who run `scontrol show node`, and for the watcher and `slurmstack health`, which read it back. A comment that
an administrator had set stays, after ` || `. What is not understood of a line is left out: the checks in it are then
unknown, which changes nothing anywhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from images.common.health.contract import FaultClass, Result, Status

MESSAGE_LENGTH: Final = 240
"""Characters of one check's message in the line. The whole message is in the pod's log."""

_WORD: Final = "health"
_NOTE: Final = " || "
_PART: Final = " | "
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_NAME: Final = r"(?P<name>[a-z0-9][a-z0-9-]*)"
_OK: Final = r"ok: (?P<names>[a-z0-9 -]+)"
_BAD: Final = rf"(?P<status>fail|warn) {_NAME}(?: \[(?P<fault>user|node|hardware)\])?:(?: (?P<message>.*))?"
_UNKNOWN: Final = rf"not checked {_NAME}:(?: (?P<message>.*))?"
# Patterns are compiled where they are used: a run of the checks on a healthy node needs none of them.
FAULTS: Final[Mapping[str, FaultClass]] = {"user": "user", "node": "node", "hardware": "hardware"}
"""The least grave first."""


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
    return Report(at=at, results={name: result for part in parts for name, result in _results(part)}, note=note)


def note_of(comment: str) -> str:
    """What an administrator has written into a Comment: all of it, where there is no report."""
    report = decode(comment)
    return comment.strip() if report is None else report.note.strip()


def stamp(at: float) -> str:
    """Seconds since 1970 as people and Kubernetes read them: `2026-11-21T21:55:03Z`."""
    return time.strftime(_TIME, time.gmtime(at))


def moment(text: str) -> int | None:
    """And back; None if that is no time. Not by strptime: the watcher reads thousands in a round."""
    numbers = re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)Z", text)
    if numbers is None:
        return None
    year, month, day, hours, minutes, seconds = (int(number) for number in numbers.groups())
    years, months = (year, month - 3) if month > 2 else (year - 1, month + 9)  # a year that begins in March
    days = 365 * years + years // 4 - years // 100 + years // 400 + (153 * months + 2) // 5 + day - 719469
    at = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return at if text == stamp(at) else None


def _results(part: str) -> Iterator[tuple[str, Result]]:
    part = part.strip()
    if match := re.fullmatch(_OK, part):
        for name in match["names"].split():
            yield name, Result(status=Status.OK)
    elif match := re.fullmatch(_BAD, part):
        fault = FAULTS.get(match["fault"] or "")
        yield match["name"], Result(status=Status(match["status"]), fault=fault, message=match["message"] or "")
    elif match := re.fullmatch(_UNKNOWN, part):
        yield match["name"], Result(status=Status.NOT_CHECKED, message=match["message"] or "")


def gists(results: Mapping[str, Result]) -> dict[str, str]:
    """What the results say, apart from figures that move (`91 % used`, `92 % used`). A change of it is told at once."""
    return {name: _gist(result) for name, result in results.items()}


def changes(old: Mapping[str, str], results: Mapping[str, Result]) -> list[str]:
    """What the log says about results: a line for each that is not what it was. `old`: the gists of the last ones."""
    lines = []
    for name in sorted(results):
        before, after = old.get(name), results[name]
        if before == _gist(after):
            continue
        if after.status is not Status.OK:
            lines.append(line_of(name, after))
        elif before is not None:
            lines.append(f"ok {name}: it was {before.partition('|')[0]}")
    return lines


def _gist(result: Result) -> str:
    message = re.sub(r"\d+(?:\.\d+)?", "0", one_line(result.message)) if result.message else ""
    return f"{result.status.value}|{result.fault or ''}|{message}"
