"""What a test has found: from what came back of its job, and what is expected of the platform, to a result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from images.health.contract import Result, Status
from images.health.node_tests.contract import NodeTest, Reading, UnreadableError
from images.health.node_tests.expected import INFINIBAND, Expected, minima_of
from images.health.verdict import not_checked

NO_PROGRAM: Final = 127


@dataclass(frozen=True, kw_only=True)
class Said:
    """What the batch script has told in the Comment of its job (`on_node.py`)."""

    code: int
    text: str
    platform: str = ""
    end: str = ""
    """The end of an output in which nothing matters."""
    cut: bool = False
    """There was more of it than a comment holds."""


def parse(comment: str) -> Said | None:
    """None if that is not what the batch script writes."""
    try:
        given = json.loads(comment)
        code, text = given["code"], given["text"]
    except (ValueError, KeyError, TypeError):
        return None
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(text, str):
        return None
    return Said(
        code=code,
        text=text,
        platform=str(given.get("platform", "")),
        end=str(given.get("end", "")),
        cut=given.get("cut") is True,
    )


def judge(test: NodeTest, said: Said, expected: Expected, *, platforms: Iterable[str], infiniband: bool) -> Result:
    """The result of one run. `platforms`: what the site calls the nodes, which counts before what the node has told.

    A node or pair that is too slow fails; that it was measured once, and which of two it is, is for others to weigh.
    """
    names = [*platforms, *([said.platform] if said.platform else [])]
    if infiniband and test.nodes > 1:
        names = [f"{name}{INFINIBAND}" for name in names]
    try:
        reading = test.read(said.text)
    except UnreadableError as error:
        return not_checked(_why(test, said, str(error)))
    if said.cut:
        return not_checked("it has said more than fits")
    if reading.bad:
        return Result(status=Status.FAIL, message=_told(test, reading), fault=test.fault, values=_values(test, reading))
    if said.code != 0:
        return not_checked(f"ended with code {said.code}: {_told(test, reading)}")
    return _compared(test, reading, minima_of(expected, names, test.name), names)


def _compared(test: NodeTest, reading: Reading, minima: Mapping[str, float], names: list[str]) -> Result:
    values = _values(test, reading)
    if absent := sorted(set(minima) - set(reading.figures)):
        return not_checked(f"it did not say {' and '.join(absent)}")
    slow = {name: minima[name] for name in minima if reading.figures[name] < minima[name]}
    if slow:
        return Result(status=Status.FAIL, message=_told(test, reading, slow), fault=test.fault, values=values)
    if reading.passed or minima:
        return Result(status=Status.OK, message=_told(test, reading), values=values)
    platform = " or ".join(names) or "a platform that is not known"
    message = f"{_told(test, reading)}; nothing is known to be expected of {platform}"
    return Result(status=Status.NOT_CHECKED, message=message, values=values)


def _told(test: NodeTest, reading: Reading, slow: Mapping[str, float] | None = None) -> str:
    """The figures, and what was expected of those that are too low: `busbw 212 GB/s (at least 420 expected)`."""
    parts = [reading.bad] if reading.bad else []
    for name, value in reading.figures.items():
        asked = f" (at least {slow[name]:.4g} expected)" if slow and name in slow else ""
        parts.append(f"{name} {value:.4g} {test.units[name]}{asked}")
    return ", ".join(parts)


def _values(test: NodeTest, reading: Reading) -> dict[str, float]:
    return {f'node_test{{test="{test.name}",figure="{name}"}}': value for name, value in reading.figures.items()}


def _why(test: NodeTest, said: Said, error: str) -> str:
    if said.code == NO_PROGRAM:
        return said.end or f"there is no {test.command.__module__.rpartition('.')[2]} tool"
    end = f": {said.end}" if said.end else ""
    code = f"ended with code {said.code}, " if said.code else ""
    return f"{code}{error}{end}"


def unheard(state: str) -> Result:
    """Of a job that has ended and told nothing."""
    return not_checked(f"its job ended as {state} and told nothing")


def as_json(value: Any) -> str:
    """One line, for an argument of a command."""
    return json.dumps(value, ensure_ascii=True, separators=(", ", ": "))
