"""How checks say what they have found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from images.common.health.contract import FaultClass, Result, Status
from images.common.health.report import gravity


class UnknownError(Exception):
    """It cannot be told how something is; the text says why. A check that raises it is `not checked`."""


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
    order = [Status.OK, Status.WARN, Status.NOT_CHECKED, Status.FAIL]
    found = list(results) or [ok()]
    by_gravity = sorted(found, key=lambda result: order.index(result.status), reverse=True)
    status = by_gravity[0].status
    faults = [result.fault for result in found if result.status is status and result.fault]
    values: dict[str, float] = {}
    for result in found:
        values |= result.values
    return Result(
        status=status,
        message="; ".join(result.message for result in by_gravity if result.message),
        fault=max(faults, key=gravity, default=None),
        values=values,
    )
