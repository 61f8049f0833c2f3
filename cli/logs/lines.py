"""Lines that many wrote, in the order of time: how they are read and shown, and which job or node one names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import typer

from cli.text import printable

_SECOND = 1_000_000_000
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:Z|\+00:00)?")

_JOB = re.compile(
    r"""(?ix)
    (?: (?<! [a-z0-9] ) (?: job | step ) [ _]? (?: id )? \\?["']? [ ]* (?: [:=\#] [ ]* )? | \[ (?= \d+\. ) )
    ( \d+ )                                              # of the job, or of the array that it belongs to
    (?: [_+] (?: ( \d+ ) | \* | \[ [\d,%-]+ \] ) )?      # of the task; all that wait together are 5_*
    (?: \( ( \d+ ) \) )?                                 # of the task as a job: JobId=5_3(7)
    (?! \w )"""
)
"""As slurmctld, slurmd, slurmstepd and our own programs write it: `JobId=5_3(7)`, `StepId=5.0`, `[5.batch]`,
`Launching batch job 5`, `prolog job 5: ...`."""

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})?)?")


@dataclass(frozen=True, kw_only=True)
class Line:
    """What one of many wrote."""

    at: int
    """Nanoseconds since 1970. Of what is known to the second only, the last one of that second: so it comes after what
    is known better, as it does where lines are sorted as text."""
    component: str
    """`worker`, `controller`, ...; `event` and `sacct` for what is no log."""
    place: str
    """`POD/CONTAINER`, or what an event is about."""
    text: str

    @property
    def time(self) -> str:
        """In UTC, to the millisecond where that is known."""
        seconds, rest = divmod(self.at, _SECOND)
        known = "" if rest == _SECOND - 1 else f".{rest // 1_000_000:03d}"
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}{known}Z"

    @property
    def source(self) -> str:
        """Who wrote it, in one word."""
        return f"{self.component}({self.place})"

    def __str__(self) -> str:
        return f"{self.time.ljust(24)} {self.source} {self.text}"

    def as_data(self) -> dict[str, Any]:
        """The line for scripts (docs/diagnose.md). CHANGELOG.md names keys that go."""
        return {"time": self.time, "component": self.component, "place": self.place, "text": self.text}


def nanoseconds(text: str) -> int | None:
    """A time as kubelet, Kubernetes and Slurm write it, all in UTC; None if it is none. datetime has no nanoseconds."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    try:
        whole = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except ValueError:  # the 30th of February
        return None
    at = to_the_second(whole.timestamp())
    return at - (_SECOND - 1) + int(match[2].ljust(9, "0")) if match[2] else at


def to_the_second(seconds: float) -> int:
    """A time since 1970 of which no more is known, as lines have it."""
    return int(seconds) * _SECOND + _SECOND - 1


def parse_log(printed: str, component: str, place: str) -> list[Line]:
    """What `kubectl logs --timestamps` printed. What has no time of its own belongs to the line before it."""
    found: list[Line] = []
    for line in printed.removesuffix("\n").split("\n"):
        stamp, _, text = line.partition(" ")
        at = nanoseconds(stamp)
        if at is not None:
            found.append(Line(at=at, component=component, place=place, text=text))
        elif found:
            found.append(replace(found[-1], text=line))
    return found


def in_order(lines: Iterable[Line], *, since: datetime | None = None) -> list[Line]:
    """The lines from a time on, each after those that were written before it."""
    first = 0 if since is None else int(since.timestamp() * 1000) * 1_000_000
    # Lines of one moment stay as their source has them.
    return sorted((line for line in lines if line.at >= first), key=lambda line: line.at)


def names_job(wanted: Collection[str]) -> Callable[[str], bool]:
    """Whether a text names one of these jobs: numbers, or ARRAY_TASK. An array's number stands for all its tasks."""
    ids = frozenset(wanted)

    def matches(text: str) -> bool:
        named = (match.groups("") for match in _JOB.finditer(text))
        return any(not ids.isdisjoint({job, f"{job}_{task}", as_job}) for job, task, as_job in named)

    return matches


def names_node(node: str) -> Callable[[str], bool]:
    """Whether a text names a node, also in a list of hosts as Slurm writes it: `NodeList=a-[0-2,5],b-1`."""
    pool, _, number = node.rpartition("-")
    if not number.isdecimal():
        exactly = re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w-])")
        return lambda text: exactly.search(text) is not None
    # What follows may be a domain or the end of a sentence, but no longer name.
    pattern = re.compile(rf"(?<![\w.-]){re.escape(pool)}-(?:(\d+)(?!\w|-[\w\[])|\[([\d,-]+)\](?!\w))")

    def matches(text: str) -> bool:
        return any(_has(match[1] or match[2], int(number)) for match in pattern.finditer(text))

    return matches


def _has(listed: str, number: int) -> bool:
    """Whether `0-2,5` has the number. Users write names of nodes into logs, of thousands of digits too."""
    for part in listed.split(","):
        match = _RANGE.fullmatch(part)
        if match and int(match[1]) <= number <= int(match[2] or match[1]):
            return True
    return False


def print_lines(lines: Sequence[Line], *, as_json: bool) -> None:
    """One a line. Control characters are blanks, so that no log can move the cursor; JSON writes them as escapes."""
    for line in lines:
        typer.echo(json.dumps(line.as_data()) if as_json else printable(str(line)))
