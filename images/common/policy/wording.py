"""Changes of policy as lines that people read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from images.common.policy.document import Key, ObjectKind
from images.common.policy.fields import ASSOCIATION, QOS, TAG, Attributes, unset

_HIDDEN = {"comment"}
_TIMES = {"start"}
_MINUTES = {"grp_wall", "max_wall"}
_SECONDS = {"duration", "grace_time", "preempt_exempt_time"}

_JOBS: Final = 5
"""Numbers of jobs in a line at most."""


def change_line(action: str, kind: ObjectKind, key: Key, old: Attributes, new: Attributes) -> str:
    """For example `+ account ml (parent root, fairshare 10)` or `~ user alice in ml: fairshare 1 => 3`."""
    name = f"{action} {_subject(kind, key)}"
    if action == "-":
        return f"{name} (accounts {', '.join(old['accounts'])})" if kind == "user" else name
    if action == "+":
        if kind == "user" and new["admin_level"] == "none":
            return ""  # its associations tell
        told = [
            f"{_label(item)} {_value(item, value)}" for item, value in new.items() if _says_more(kind, key, item, value)
        ]
        return f"{name} ({', '.join(told)})" if told else name
    told = [
        f"{_label(item)} {_value(item, old.get(item))} => {_value(item, value)}"
        for item, value in new.items()
        if item not in _HIDDEN and _value(item, old.get(item)) != _value(item, value)
    ]
    return f"{name}: {', '.join(told) or 'made by hand before, kept by the stack file from now on'}"


def kept_line(kind: ObjectKind, key: Key) -> str:
    """For something that was made by hand and stays."""
    return f"! {_subject(kind, key)} was made by hand: kept (accounting.prune: true removes it)"


def busy_line(kind: ObjectKind, key: Key, jobs: Sequence[str]) -> str:
    """For something that left the stack file while jobs use it."""
    if not jobs:
        return f"! {_subject(kind, key)} left the stack file, but something below it is kept: kept as well"
    told = (
        f"job{'' if len(jobs) == 1 else 's'} "
        + ", ".join(jobs[:_JOBS])
        + (f" and {len(jobs) - _JOBS} more" if len(jobs) > _JOBS else "")
    )
    closed = ", without new jobs" if kind == "association" else ""
    return (
        f"! {_subject(kind, key)} left the stack file, but jobs wait or run with it ({told}): "
        f"kept{closed}; the first `up` after their end removes it"
    )


def _subject(kind: ObjectKind, key: Key) -> str:
    if kind != "association":
        return f"{kind} {key[0]}"
    user, account, partition = key
    return f"user {user} in {account}" + (f", partition {partition}" if partition else "")


def _says_more(kind: ObjectKind, key: Key, item: str, value: Any) -> bool:
    """Whether a value of something new is worth telling: not if it is what everybody has."""
    if item in _HIDDEN or value is None or value in ((), {}):
        return False
    if item in {"description", "organization"}:
        return str(value).removesuffix(TAG) != key[0]
    if item in {"maintenance", "ignore_jobs"}:
        return bool(value)
    if item == "fairshare":
        return kind == "account" or value != 1
    blank = unset(QOS if kind == "qos" else ASSOCIATION)
    return item not in blank or blank[item] != value


def _label(item: str) -> str:
    return item.replace("_", " ")


def _value(item: str, value: Any) -> str:
    if value is None or value in ((), {}, ""):
        return "none"
    if item in _TIMES:
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%M:%S}"
    if item in _MINUTES | _SECONDS:
        return _length(value * 60 if item in _MINUTES else value)
    if isinstance(value, tuple | dict):
        return ",".join(value if isinstance(value, tuple) else (f"{name}={value[name]}" for name in sorted(value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).removesuffix(TAG) if item == "description" else str(value)


def _length(seconds: int) -> str:
    """As Slurm writes a time: `1-00:00:00`."""
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock
