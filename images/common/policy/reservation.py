"""Reservations as scontrol shows and takes them, and when two of them mean the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from images.common.policy.document import Attributes, parse_time
from images.common.slurm_records import expand, fields_of

_DAY: Final = 86400
_PERIODS: Final = {"hourly": 3600, "daily": _DAY, "weekday": _DAY, "weekend": _DAY, "weekly": 7 * _DAY}
"""How often a reservation repeats, and each how many seconds."""

_RETEST: Final = ("health-test-", "re-test of ")
"""How the names and comments begin of reservations that the tests of nodes make for some minutes
(images/health/node_tests/slurm.py). They are no part of the policy: `prune` must not open a node that is measured."""


def parse(text: str) -> dict[tuple[str, ...], dict[str, Any]]:
    """What `scontrol show reservation --oneliner` printed, with times in UTC."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for line in text.splitlines():
        if line.startswith("ReservationName="):
            values = fields_of(line, last="Comment")
            if values["ReservationName"].startswith(_RETEST[0]) and values["Comment"].startswith(_RETEST[1]):
                continue
            found[(values["ReservationName"],)] = _attributes(values)
    return found


def _attributes(values: Mapping[str, str]) -> dict[str, Any]:
    flags = set(filter(None, values.get("Flags", "").split(",")))
    chosen = "SPEC_NODES" in flags
    start = _time(values["StartTime"])
    return {
        "start": start,
        "duration": parse_time(values["Duration"]),
        "nodes": expand(values["Nodes"]) if chosen else (),
        "node_count": None if chosen else int(values["NodeCnt"] or 0),
        "partition": values.get("PartitionName") or None,
        "users": _names(values.get("Users", "")),
        "accounts": _names(values.get("Accounts", "")),
        "repeat": next((name for name in _PERIODS if name.upper() in flags), None),
        "maintenance": "MAINT" in flags,
        "ignore_jobs": "IGNORE_JOBS" in flags,
        "comment": values["Comment"],
    }


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted(filter(None, text.split(","))))


def _time(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def has_ended(wanted: Attributes, now: float) -> bool:
    """Whether its time is over for good."""
    return wanted["repeat"] is None and int(wanted["start"]) + int(wanted["duration"]) <= now


def next_start(wanted: Attributes, now: float) -> int:
    """When to let it begin: Slurm takes no time in the past."""
    start = int(wanted["start"])
    if start > now:
        return start
    if wanted["repeat"] is None:
        return int(now)
    period = _PERIODS[wanted["repeat"]]
    start += (int(now) - start) // period * period + period
    wrong_days = {"weekday": (5, 6), "weekend": range(5)}.get(wanted["repeat"], ())
    while datetime.fromtimestamp(start, UTC).weekday() in wrong_days:
        start += period
    return start


def settled(present: Attributes, wanted: Attributes, now: float) -> Attributes:
    """`wanted` with what a reservation that is there already may rightly have instead.

    A repeated one moves on by itself, one that was made after its start began later, and where no partition is asked
    for, Slurm takes the default one.
    """
    start, duration = int(wanted["start"]), int(wanted["duration"])
    if wanted["repeat"] and wanted["repeat"] == present["repeat"]:
        period = _PERIODS[wanted["repeat"]]
        if present["start"] >= start and (present["start"] - start) % period == 0:
            start = present["start"]
    elif start <= now and present["start"] <= now:
        end = start + duration
        start = present["start"]
        duration = end - start
    return {**wanted, "start": start, "duration": duration, "partition": wanted["partition"] or present["partition"]}


def create(name: str, wanted: Attributes, now: float) -> list[str]:
    """Arguments of scontrol that make it."""
    flags = [wanted["repeat"]] if wanted["repeat"] else []
    flags += [flag for flag, given in (("maint", "maintenance"), ("ignore_jobs", "ignore_jobs")) if wanted[given]]
    settings = {**_settings(wanted, now), "flags": ",".join(flags)}
    words = [f"{key}={value}" for key, value in settings.items() if value]
    return ["create", "reservation", f"reservationname={name}", *words, f"comment={wanted['comment']}"]


def _settings(wanted: Attributes, now: float) -> dict[str, str]:
    """What `scontrol update` changes. A change of anything else makes the reservation anew."""
    start = next_start(wanted, now)
    late = start - int(wanted["start"]) if wanted["repeat"] is None else 0
    return {
        "starttime": _stamp(start),
        "endtime": _stamp(start + int(wanted["duration"]) - late),
        "nodes": ",".join(wanted["nodes"]),
        "nodecnt": str(wanted["node_count"] or ""),
        "partitionname": wanted["partition"] or "",
        "users": ",".join(wanted["users"]),
        "accounts": ",".join(wanted["accounts"]),
    }


def _stamp(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


def update(name: str, present: Attributes, wanted: Attributes, now: float) -> list[list[str]]:
    """Arguments of the calls of scontrol that turn one into the other."""
    old, new = _settings(present, now), _settings(wanted, now)
    changed = {key: value for key, value in new.items() if old[key] != value}
    remade = any(present[key] != wanted[key] for key in ("repeat", "maintenance", "ignore_jobs", "partition"))
    if remade or any(not value for value in changed.values()):
        return [delete(name), create(name, wanted, now)]
    words = [f"{key}={value}" for key, value in changed.items()]
    if present["comment"] != wanted["comment"]:
        words.append(f"comment={wanted['comment']}")
    return [["update", f"reservationname={name}", *words]]


def delete(name: str) -> list[str]:
    """Arguments of scontrol that remove it."""
    return ["delete", f"reservationname={name}"]
