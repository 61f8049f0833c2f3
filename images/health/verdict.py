"""How checks say what they have found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import ParamSpec

from images.common.health.contract import FaultClass, Result, Status

_Given = ParamSpec("_Given")


class UnknownError(Exception):
    """It cannot be told how something is; the text says why."""


def or_not_checked(program: Callable[_Given, Result]) -> Callable[_Given, Result]:
    """The program of a check that raises UnknownError where it cannot tell."""

    @functools.wraps(program)
    def run(*arguments: _Given.args, **more: _Given.kwargs) -> Result:
        try:
            return program(*arguments, **more)
        except UnknownError as error:
            return not_checked(str(error))

    return run


def ok(**values: float) -> Result:
    """All is well."""
    return Result(status=Status.OK, values=values)


def warn(fault: FaultClass, message: str, values: Mapping[str, float] | None = None) -> Result:
    """Not good."""
    return Result(status=Status.WARN, message=message, fault=fault, values=values or {})


def fail(fault: FaultClass, message: str, values: Mapping[str, float] | None = None) -> Result:
    """Jobs should not start here."""
    return Result(status=Status.FAIL, message=message, fault=fault, values=values or {})


def not_checked(why: str) -> Result:
    """Nobody knows."""
    return Result(status=Status.NOT_CHECKED, message=why)


def worst(results: Iterable[Result]) -> Result:
    """Several findings of one check as one result: the worst status, and all messages, the gravest first.

    A failure is worse than not knowing, and not knowing is worse than a warning.
    """
    found = list(results)
    order = [Status.OK, Status.WARN, Status.NOT_CHECKED, Status.FAIL]
    by_gravity = sorted(found, key=lambda result: order.index(result.status), reverse=True)
    status = by_gravity[0].status if by_gravity else Status.OK
    faults = {result.fault for result in found if result.status == status}
    values: dict[str, float] = {}
    for result in found:
        values |= result.values
    gravest: list[FaultClass] = ["hardware", "node", "user"]
    return Result(
        status=status,
        message="; ".join(result.message for result in by_gravity if result.message),
        fault=next((fault for fault in gravest if fault in faults), None),
        values=values,
    )
