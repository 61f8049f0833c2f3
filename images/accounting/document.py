"""The policy as the stack file wants it, a JSON document that `slurm/policy.py` of the stack makes and describes.

And what slurmdbd keeps of an association and of a QOS: how sacctmgr prints each value, and how it wants it set. A limit
that is not set is None, or no entry in a mapping of resources; sacctmgr prints nothing for it and takes -1 to take it
away. Everything else has one meaning and one form here, so that two values are the same if they are equal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Attributes = Mapping[str, Any]
"""Values of one object, by the names that the document uses."""

ObjectKind = Literal["qos", "account", "association", "user"]
Key = tuple[str, ...]
"""Name of an object; of an association the user, the account, and the partition or an empty string."""

VERSION: Final = 1
"""Of the document's format."""

DEFAULT_QOS: Final = "normal"
"""The QOS that Slurm itself makes."""

ROOT: Final = "root"
"""Slurm's topmost account, and its user: nobody's to remove."""

MARK: Final = "slurmstack"
"""Comment of associations that the stack file made; those made by hand have another or none."""

TAG: Final = f" [{MARK}]"
"""End of the description of a QOS that the stack file made: a QOS has no comment."""

_UNITS: Final = {"K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_IN_MEBIBYTES: Final = ("mem", "bb/")


@dataclass(frozen=True)
class Field:
    """One value of an association or a QOS."""

    key: str
    """Its name in the document."""
    column: str
    """Its name after `format=`."""
    kind: Literal[
        "text", "name", "count", "factor", "tres", "minutes", "seconds", "period", "names", "flags", "fairshare"
    ]
    other_option: str = ""

    @property
    def option(self) -> str:
        """Its name after `set`."""
        return self.other_option or self.key.replace("_", "")

    def parse(self, text: str) -> Any:
        """The value that sacctmgr has printed."""
        text = text.strip()
        return _PARSERS[self.kind](text) if text or self.kind in _NEVER_NONE else None

    def option_for(self, old: Any, new: Any) -> str:
        """The word after `set` that turns one value into another."""
        return f"{self.option}={self._written(old, new)}"

    def _written(self, old: Any, new: Any) -> str:
        match self.kind:
            case "tres":  # all of `new`, and -1 for what was there and is not any more
                return ",".join(f"{name}={new.get(name, -1)}" for name in sorted({*(old or {}), *new}))
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


_LIMITS: Final = (
    Field("grp_tres", "GrpTRES", "tres"),
    Field("grp_tres_mins", "GrpTRESMins", "tres"),
    Field("grp_tres_run_mins", "GrpTRESRunMins", "tres"),
    Field("grp_jobs", "GrpJobs", "count"),
    Field("grp_submit_jobs", "GrpSubmit", "count"),
    Field("grp_wall", "GrpWall", "minutes"),
    Field("max_tres_per_job", "MaxTRES", "tres"),
    Field("max_tres_per_node", "MaxTRESPerNode", "tres"),
    Field("max_tres_mins_per_job", "MaxTRESMins", "tres"),
    Field("max_wall", "MaxWall", "minutes"),
)
"""What both have."""

ASSOCIATION: Final = (
    Field("fairshare", "Share", "fairshare"),
    Field("priority", "Priority", "count"),
    Field("qos", "QOS", "names"),
    Field("default_qos", "DefaultQOS", "name"),
    *_LIMITS,
    Field("max_jobs", "MaxJobs", "count"),
    Field("max_submit_jobs", "MaxSubmit", "count"),
    Field("comment", "Comment", "text"),
)
"""Values of an account, and of a user in an account. The comment comes last: it may contain the separator."""

QOS: Final = (
    Field("priority", "Priority", "count"),
    Field("preempt", "Preempt", "names"),
    Field("preempt_mode", "PreemptMode", "text"),
    Field("preempt_exempt_time", "PreemptExemptTime", "period"),
    Field("grace_time", "GraceTime", "seconds"),
    Field("flags", "Flags", "flags"),
    Field("usage_factor", "UsageFactor", "factor"),
    Field("usage_threshold", "UsageThres", "factor"),
    Field("limit_factor", "LimitFactor", "factor"),
    *_LIMITS,
    Field("max_tres_per_user", "MaxTRESPU", "tres"),
    Field("max_tres_per_account", "MaxTRESPA", "tres"),
    Field("min_tres_per_job", "MinTRES", "tres"),
    Field("max_jobs_per_user", "MaxJobsPU", "count"),
    Field("max_jobs_per_account", "MaxJobsPA", "count"),
    Field("max_submit_jobs_per_user", "MaxSubmitPU", "count"),
    Field("max_submit_jobs_per_account", "MaxSubmitPA", "count"),
    Field("min_prio_threshold", "MinPrioThres", "count", "minpriothresh"),
    Field("description", "Descr", "text"),
)
"""Values of a QOS. The description comes last, as above."""


def unset(fields: tuple[Field, ...]) -> dict[str, Any]:
    """What an object has that was made without any option."""
    values = {field.key: field.parse("") for field in fields}
    if fields is ASSOCIATION:
        return values | {"fairshare": 1}
    return values | {"priority": 0, "preempt_mode": "cluster", "grace_time": 0, "usage_factor": 1.0}


def _parse_tres(text: str) -> dict[str, int]:
    """`cpu=10,mem=2G` as `{cpu: 10, mem: 2048}`: memory in MiB."""
    pairs = (item.partition("=") for item in text.split(",") if item)
    return {name: _amount(name, amount) for name, _, amount in pairs}


def _amount(name: str, amount: str) -> int:
    power = _UNITS.get(amount[-1:], 0)
    number = float(amount[:-1]) if power else int(amount)
    if power and name.startswith(_IN_MEBIBYTES):
        power -= _UNITS["M"]
    return round(number * float(1024**power))


_TIME: Final = re.compile(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)$")


def parse_time(text: str) -> int:
    """Seconds of `6-22:40:00`, as sacctmgr prints a time."""
    found = _TIME.match(text)
    if found is None:
        raise ValueError(f"{text!r} is no time")
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(sorted(text.split(","))) if text else ()


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "text": str,
    "name": str,
    "count": int,
    "factor": lambda text: round(float(text), 6),
    "tres": _parse_tres,
    "minutes": lambda text: parse_time(text) // 60,
    "seconds": parse_time,
    "period": parse_time,
    "names": _parse_names,
    "flags": _parse_names,
    "fairshare": lambda text: int(text) if text.isdigit() else text,
}
_NEVER_NONE: Final = frozenset({"text", "tres", "names", "flags"})
"""Kinds whose values are always there, if only empty."""


@dataclass(frozen=True, kw_only=True)
class State:
    """Everything that a policy is about, as it is or as it is wanted."""

    qos: Mapping[Key, Attributes] = field(default_factory=dict)
    accounts: Mapping[Key, Attributes] = field(default_factory=dict)
    associations: Mapping[Key, Attributes] = field(default_factory=dict)
    """Of users in accounts."""
    users: Mapping[Key, Attributes] = field(default_factory=dict)
    """Those with an association."""

    def of(self, kind: ObjectKind) -> Mapping[Key, Attributes]:
        """The objects of one kind."""
        found: Mapping[Key, Attributes] = getattr(self, kind if kind == "qos" else f"{kind}s")
        return found


@dataclass(frozen=True, kw_only=True)
class Policy:
    """A document that was read."""

    wanted: State
    prune: bool


def load(text: str) -> Policy:
    """Read a document. Raises ValueError if it is one of another version of the stack."""
    document = json.loads(text)
    if document["version"] != VERSION:
        raise ValueError(f"the policy has format {document['version']}; this program reads {VERSION}")
    return Policy(wanted=_wanted(document), prune=bool(document["prune"]))


def _wanted(document: Mapping[str, Any]) -> State:
    users = document["users"]
    return State(
        qos={(name,): _qos(name, values) for name, values in document["qos"].items()},
        accounts={(name,): _account(values) for name, values in document["accounts"].items()},
        associations={
            (user, account, ""): _association(values)
            for user, entry in users.items()
            for account, values in entry["associations"].items()
        },
        users={
            (name,): {"default_account": entry["default_account"], "admin_level": entry["admin_level"]}
            for name, entry in users.items()
            if entry["associations"]
        },
    )


def _qos(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    read = _values(QOS, values)
    return read | {"description": f"{read['description'] or name}{TAG}".lower()}


def _account(values: Mapping[str, Any]) -> dict[str, Any]:
    texts = {key: str(values[key]).lower() for key in ("parent", "description", "organization")}
    return texts | _association(values)


def _association(values: Mapping[str, Any]) -> dict[str, Any]:
    return _values(ASSOCIATION, values) | {"comment": MARK}


def _values(fields: tuple[Field, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    blank = unset(fields)
    return blank | {key: _plain(value) for key, value in values.items() if key in blank and value is not None}


def _plain(value: Any) -> Any:
    """Lists in the one order in which they are compared."""
    return tuple(sorted(value)) if isinstance(value, list) else value


def is_declared(kind: ObjectKind, attributes: Attributes) -> bool:
    """Whether an object that is there came from a stack file."""
    if kind == "qos":
        return str(attributes["description"]).endswith(TAG)
    return attributes.get("comment") == MARK


def untouched_default_qos() -> dict[str, Any]:
    """`normal` as Slurm makes it."""
    return unset(QOS) | {"description": "normal qos default"}
