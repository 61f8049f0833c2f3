"""What slurmdbd keeps of an association and of a QOS: how sacctmgr prints each value, and how it wants it set.

A limit that is not set is None, or no entry in a mapping of resources; sacctmgr prints nothing for it and takes -1 to
take it away. Everything else has one meaning and one form here, so that two values are the same if they are equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Attributes = Mapping[str, Any]
"""Values of one object, by the names that the document uses."""

Kind = Literal[
    "text", "name", "count", "number", "factor", "tres", "minutes", "seconds", "period", "names", "flags", "fairshare"
]

MARK: Final = "slurmstack"
"""Comment of associations and reservations that the stack file made; those made by hand have another or none."""

TAG: Final = f" [{MARK}]"
"""End of the description of a QOS that the stack file made: a QOS has no comment."""

_UNITS: Final = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_IN_MEBIBYTES: Final = ("mem", "bb/")


@dataclass(frozen=True, kw_only=True)
class Field:
    """One value of an association or a QOS."""

    key: str
    """Its name in the document."""
    option: str
    """Its name after `set`."""
    column: str
    """Its name after `format=`."""
    kind: Kind = "text"

    def parse(self, text: str) -> Any:
        """The value that sacctmgr has printed."""
        text = text.strip()
        if self.kind in _ALWAYS:
            return _ALWAYS[self.kind](text)
        return _SOMETIMES[self.kind](text) if text else None

    def option_for(self, old: Any, new: Any) -> str:
        """The word after `set` that turns one value into another."""
        return f"{self.option}={self._written(old, new)}"

    def _written(self, old: Any, new: Any) -> str:
        match self.kind:
            case "tres":
                return format_tres(old or {}, new)
            case "names" | "flags":
                return ",".join(new) if new or self.kind == "names" else "-1"
            case _ if new is None:
                return "-1"
            case "factor":
                return f"{new:.6f}"
            case "period":
                return f"{new // 3600:02}:{new // 60 % 60:02}:{new % 60:02}"
            case _:
                return str(new)


def _field(key: str, column: str, kind: Kind, option: str = "") -> Field:
    return Field(key=key, option=option or key.replace("_", ""), column=column, kind=kind)


_LIMITS: Final = (
    _field("grp_tres", "GrpTRES", "tres"),
    _field("grp_tres_mins", "GrpTRESMins", "tres"),
    _field("grp_tres_run_mins", "GrpTRESRunMins", "tres"),
    _field("grp_jobs", "GrpJobs", "count"),
    _field("grp_submit_jobs", "GrpSubmit", "count"),
    _field("grp_wall", "GrpWall", "minutes"),
    _field("max_tres_per_job", "MaxTRES", "tres"),
    _field("max_tres_per_node", "MaxTRESPerNode", "tres"),
    _field("max_tres_mins_per_job", "MaxTRESMins", "tres"),
    _field("max_wall", "MaxWall", "minutes"),
)
"""What both have."""

ASSOCIATION: Final = (
    _field("fairshare", "Share", "fairshare"),
    _field("priority", "Priority", "count"),
    _field("qos", "QOS", "names"),
    _field("default_qos", "DefaultQOS", "name"),
    *_LIMITS,
    _field("max_jobs", "MaxJobs", "count"),
    _field("max_submit_jobs", "MaxSubmit", "count"),
    _field("comment", "Comment", "text"),
)
"""Values of an account, and of a user in an account. The comment comes last: it may contain the separator."""

QOS: Final = (
    _field("priority", "Priority", "number"),
    _field("preempt", "Preempt", "names"),
    _field("preempt_mode", "PreemptMode", "text"),
    _field("preempt_exempt_time", "PreemptExemptTime", "period"),
    _field("grace_time", "GraceTime", "seconds"),
    _field("flags", "Flags", "flags"),
    _field("usage_factor", "UsageFactor", "factor"),
    _field("usage_threshold", "UsageThres", "factor"),
    _field("limit_factor", "LimitFactor", "factor"),
    *_LIMITS,
    _field("max_tres_per_user", "MaxTRESPU", "tres"),
    _field("max_tres_per_account", "MaxTRESPA", "tres"),
    _field("min_tres_per_job", "MinTRES", "tres"),
    _field("max_jobs_per_user", "MaxJobsPU", "count"),
    _field("max_jobs_per_account", "MaxJobsPA", "count"),
    _field("max_submit_jobs_per_user", "MaxSubmitPU", "count"),
    _field("max_submit_jobs_per_account", "MaxSubmitPA", "count"),
    _field("min_prio_threshold", "MinPrioThres", "count", "minpriothresh"),
    _field("description", "Descr", "text"),
)
"""Values of a QOS. The description comes last, as above."""


def unset(fields: tuple[Field, ...]) -> dict[str, Any]:
    """What an object has that was made without any option."""
    values = {field.key: field.parse("") for field in fields}
    if fields is ASSOCIATION:
        return values | {"fairshare": 1}
    return values | {"priority": 0, "preempt_mode": "cluster", "grace_time": 0, "usage_factor": 1.0}


def parse_tres(text: str) -> dict[str, int]:
    """`cpu=10,mem=2G` as `{cpu: 10, mem: 2048}`: memory in MiB."""
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {name: _amount(name, amount) for name, _, amount in pairs}


def _amount(name: str, amount: str) -> int:
    power = _UNITS.get(amount[-1:], 0)
    number = float(amount[:-1]) if power else int(amount)
    if power and name.startswith(_IN_MEBIBYTES):
        power -= _UNITS["M"]
    return round(number * float(1024**power))


def format_tres(old: Mapping[str, int], new: Mapping[str, int]) -> str:
    """All of `new`, and -1 for what was there and is not any more."""
    return ",".join(f"{name}={new.get(name, -1)}" for name in sorted({*old, *new}))


_TIME: Final = re.compile(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)$")


def parse_time(text: str) -> int:
    """Seconds of `6-22:40:00`, as sacctmgr and scontrol print a time."""
    found = _TIME.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no time")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _names(text: str) -> tuple[str, ...]:
    return tuple(sorted(text.split(","))) if text else ()


_ALWAYS: Final[Mapping[str, Callable[[str], Any]]] = {"tres": parse_tres, "names": _names, "flags": _names, "text": str}
"""How kinds are read whose values are always there, if only empty."""

_SOMETIMES: Final[Mapping[str, Callable[[str], Any]]] = {
    "name": str,
    "count": int,
    "number": int,
    "factor": lambda text: round(float(text), 6),
    "minutes": lambda text: parse_time(text) // 60,
    "seconds": parse_time,
    "period": parse_time,
    "fairshare": lambda text: int(text) if text.isdigit() else text,
}
"""How kinds are read of which there may be none."""
