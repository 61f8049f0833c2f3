"""What all sections of the stack file have in common, and values of many: sizes, CPUs, times, parts of all nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema


class Section(BaseModel):
    """A part of the stack file: frozen, and a key that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def _problem(self) -> str | None:
        """What is wrong with keys that are right one by one; None if they go together."""
        return None

    def model_post_init(self, _context: Any) -> None:
        """Refuse keys that do not go together, as pydantic refuses a key."""
        if (problem := self._problem()) is not None:
            raise ValueError(problem)


@dataclass(frozen=True)
class Matching:
    """A check of a text: the whole of it is as the pattern says."""

    pattern: str
    why: str
    """What is wrong with others, and how they are."""

    def check(self, text: str) -> str:
        """The text, or ValueError."""
        if not re.fullmatch(self.pattern, text):
            raise ValueError(self.why)
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return AfterValidator(self.check).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> Any:
        return {**handler(core), "pattern": self.pattern}


def once(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names if none is there twice, else ValueError."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"has {name!r} more than once")
    return names


_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_QUANTITY = r"^([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)$"
_NO_SIZE = "is not a size: write a number with a unit, for example 512Mi, 20Gi or 1Ti"

GIBIBYTE = 2**30


def parse_bytes(quantity: str) -> int:
    """Bytes of a Kubernetes quantity such as `512Mi` or `1.5Ti`. Raises ValueError if it is none."""
    match = re.fullmatch(_QUANTITY, quantity)
    if match is None:
        raise ValueError(_NO_SIZE)
    number, unit = match.groups()
    # Bounded: a number of hundreds of digits would be infinite.
    return int(min(float(number) * (_BINARY | _DECIMAL)[unit], 1e30))


def gibibytes(quantity: str) -> int:
    """A size in whole GiB, rounded up."""
    return -(-parse_bytes(quantity) // GIBIBYTE)


def _quantity(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError(_NO_SIZE)  # noqa: TRY004 - pydantic tells of no other
    if parse_bytes(given) <= 0:
        raise ValueError("must be more than nothing")
    if parse_bytes(given) > _BINARY["Pi"] * 100:
        raise ValueError("is more than 100Pi, which is surely a slip")
    return given


Quantity = Annotated[
    str, BeforeValidator(_quantity), Field(json_schema_extra={"pattern": _QUANTITY, "examples": ["10Gi"]})
]
"""A size in bytes with a unit: `512Mi`, `20Gi`, `1.5Ti` (binary) or `20G` (decimal)."""


def at_least(minimum: str, why: str) -> AfterValidator:
    """A check of a `Quantity`: not less than `minimum`; `why` goes on after "is too little for"."""

    def check(quantity: str) -> str:
        if parse_bytes(quantity) < parse_bytes(minimum):
            raise ValueError(f"is too little for {why}; {minimum} at least")
        return quantity

    return AfterValidator(check)


Memory = Annotated[Quantity, at_least("32Mi", "a daemon")]
"""Memory that a pod asks Kubernetes for; below the least that any of ours starts with."""

Volume = Annotated[Quantity, at_least("100Mi", "what is kept there")]
"""Size of a volume; below the least that anything of ours fits into."""


def parse_cpus(quantity: str) -> float:
    """CPUs of a Kubernetes quantity such as `500m` or `2`."""
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


Cpu = Annotated[
    str,
    Matching(r"^([0-9]{1,5}(\.[0-9]+)?|[0-9]{1,8}m)$", "is not a number of CPUs: write it as '2', '0.5' or 500m"),
]
"""CPUs as Kubernetes has them: `2`, `0.5` or `500m`."""


def seconds(limit: str) -> int | None:
    """Seconds of a TimeLimit; None if there is no limit."""
    if limit.upper() in {"INFINITE", "UNLIMITED"}:
        return None
    days, dash, rest = limit.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    if dash:  # days-hours[:minutes[:seconds]]
        hours, minutes, secs = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, secs = parts
    else:  # minutes[:seconds]
        hours, (minutes, secs) = 0, (*parts, 0)[:2]
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + secs


def _counted(limit: str) -> str:
    if (seconds(limit) or 0) >= 2**31:  # Slurm has an int of 32 bits for it (time_str2secs)
        raise ValueError("is more than Slurm can count: 24855 days at most, or UNLIMITED")
    return limit


TimeLimit = Annotated[
    str,
    Matching(
        r"^(([0-9]{1,9}-)?[0-9]{1,9}(:[0-9]{1,9}){0,2}"  # 1:99:99, too: Slurm adds it up
        r"|[Uu][Nn][Ll][Ii][Mm][Ii][Tt][Ee][Dd]|[Ii][Nn][Ff][Ii][Nn][Ii][Tt][Ee])$",
        "is not a Slurm time: minutes, [hours:]minutes:seconds, days-hours[:minutes[:seconds]] or UNLIMITED",
    ),
    AfterValidator(_counted),
]
"""Slurm's notation: `30` (minutes), `1:30:00`, `1-00:00:00` (days-hours:minutes:seconds), `UNLIMITED`."""

_SPAN = r"^[1-9][0-9]{0,6}[smhd]$"


def _span(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(_SPAN, value):
        return value
    raise ValueError("is not a span of time: a number with a unit, such as 90s, 10m or 2h")


Span = Annotated[str, BeforeValidator(_span), Field(json_schema_extra={"pattern": _SPAN})]
"""A span of time as Prometheus and Kubernetes write it: `90s`, `10m`, `2h`, `1d`."""


def span_seconds(span: str) -> int:
    """Seconds of a Span."""
    return int(span[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[span[-1]]


def span_of(shortest: int, longest: int) -> AfterValidator:
    """Bounds of a Span in seconds."""

    def check(span: str) -> str:
        if not shortest <= span_seconds(span) <= longest:
            raise ValueError(f"is out of range: {shortest}s to {longest}s")
        return span

    return AfterValidator(check)


MAX_NODES: Final = 10_000
"""Nodes of one cluster at most: far above what Kubernetes is tested to, low enough to catch a slip of the keyboard."""

_PERCENT: Final = r"(100|[1-9]?[0-9])%"

PART_SCHEMA: Final = WithJsonSchema(
    {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{_PERCENT}$"}]}
)


def amount_or_part(what: str, *, most: int, least: int = 0) -> BeforeValidator:
    """A check of a number of something, or a part of all, before pydantic tells of each of the two types."""

    def check(amount: object) -> object:
        number = isinstance(amount, int) and not isinstance(amount, bool) and least <= amount <= most
        part = isinstance(amount, str) and re.fullmatch(_PERCENT, amount) and int(amount[:-1]) >= least
        if not number and not part:
            raise ValueError(f"is neither a number of {what} from {least} to {most} nor a part of them such as 10%")
        return amount

    return BeforeValidator(check)


Limit = Annotated[int | str, amount_or_part("nodes", most=MAX_NODES), PART_SCHEMA]
"""A number of nodes, or a part of all: `3`, `10%`."""
