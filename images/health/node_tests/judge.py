"""What a test has found: from what came back of its job, and what is expected of the platform, to a result."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from images.common.health.contract import Result, Status
from images.health.node_tests.catalog import NodeTest, UnreadableError, read
from images.health.node_tests.expected import INFINIBAND, Expected, minima_of
from images.health.verdict import not_checked

NO_PROGRAM: Final = 127


def judge(
    test: NodeTest, comment: str, state: str, expected: Expected, *, platforms: Sequence[str], infiniband: bool
) -> Result:
    """The result of one run, from the Comment that the batch script has given to its job (`on_node.py`).

    `state`: how the job ended. `platforms`: what the site calls the nodes, which counts before what the node has told.
    """
    said = _parsed(comment)
    if said is None:
        return not_checked(f"its job ended as {state} and told nothing")
    code, end = said["code"], str(said.get("end", ""))
    try:
        figures, faults = read(test, said["text"])
    except UnreadableError as error:
        return not_checked(end if code == NO_PROGRAM and end else f"ended with code {code}, {error}: {end}")
    if faults:
        return Result(status=Status.FAIL, fault=test.fault, message=", ".join([*faults, _told(test, figures)]))
    if code != 0 or said.get("cut"):
        return not_checked(f"ended with code {code}{', too long' if said.get('cut') else ''}: {_told(test, figures)}")
    names = [name for name in (*platforms, str(said.get("platform", ""))) if name]
    if infiniband and test.nodes > 1:
        names = [f"{name}{INFINIBAND}" for name in names]
    minima = minima_of(expected, names, test.name)
    slow = {name: least for name, least in minima.items() if figures[name] < least}
    if minima or test.judges:
        status, fault = (Status.FAIL, test.fault) if slow else (Status.OK, None)
        return Result(status=status, fault=fault, message=_told(test, figures, slow))
    known = " or ".join(names) or "a platform that is not known"
    return not_checked(f"{_told(test, figures)}; nothing is known to be expected of {known}")


def _parsed(comment: str) -> dict[str, Any] | None:
    """None if that is not what the batch script writes."""
    try:
        said = json.loads(comment)
    except ValueError:
        return None
    fits = isinstance(said, dict) and type(said.get("code")) is int and isinstance(said.get("text"), str)
    return said if fits else None


def _told(test: NodeTest, figures: Mapping[str, float], slow: Mapping[str, float] | None = None) -> str:
    """The figures, and what was expected of those that are too low: `busbw 212 GB/s (at least 420 expected)`."""
    asked = {name: f" (at least {least:.4g} expected)" for name, least in (slow or {}).items()}
    parts = (f"{name} {value:.4g} {test.figures[name].unit}{asked.get(name, '')}" for name, value in figures.items())
    return ", ".join(parts)
