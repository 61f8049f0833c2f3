"""What all sections of the stack file have in common, and the small value types they share."""

from __future__ import annotations

import contextlib
import re
from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


class Section(BaseModel):
    """A part of the stack file: frozen, and a key that it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def once(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names if none is there twice, else ValueError."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"has {name!r} more than once")
    return names


_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)$")

_NO_SIZE = "is not a size: write a number with a unit, for example 512Mi, 20Gi or 1Ti"

_HOST_LABEL = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?$")

_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
"""What programs take for a part of an address of IPv4."""

_DNS_LABEL = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")


def parse_bytes(quantity: str) -> int:
    """Bytes of a Kubernetes quantity such as `512Mi` or `1.5Ti`. Raises ValueError if it is none."""
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError(_NO_SIZE)
    number, unit = match.groups()
    # Bounded: a number of hundreds of digits would be infinite.
    return int(min(float(number) * (_BINARY | _DECIMAL)[unit], 1e30))


def _with_unit(quantity: object) -> object:
    if isinstance(quantity, str):
        return quantity
    raise ValueError(_NO_SIZE)


def _positive_quantity(quantity: str) -> str:
    if parse_bytes(quantity) <= 0:
        raise ValueError("must be more than nothing")
    if parse_bytes(quantity) > _BINARY["Pi"] * 100:
        raise ValueError("is more than 100Pi, which is surely a slip")
    return quantity


GIBIBYTE = 2**30


def gibibytes(quantity: str) -> int:
    """A size in whole GiB, rounded up."""
    return -(-parse_bytes(quantity) // GIBIBYTE)


Quantity = Annotated[
    str,
    BeforeValidator(_with_unit),
    AfterValidator(_positive_quantity),
    Field(json_schema_extra={"pattern": _QUANTITY.pattern, "examples": ["10Gi"]}),
]
"""A size in bytes with a unit: `512Mi`, `20Gi`, `1.5Ti` (binary) or `20G` (decimal)."""


_CPUS = re.compile(r"^([0-9]+(\.[0-9]+)?|[0-9]+m)$")

MOST_CPUS = 100_000
"""CPUs that one pod may ask for: more than any machine has, and less than what Kubernetes cannot count."""


def parse_cpus(quantity: str) -> float:
    """CPUs of a Kubernetes quantity such as `500m` or `2`."""
    return float(quantity[:-1]) / 1000 if quantity.endswith("m") else float(quantity)


def _cpus(quantity: str) -> str:
    if not _CPUS.fullmatch(quantity):
        raise ValueError("is not a number of CPUs: write it as '2', '0.5' or 500m")
    if parse_cpus(quantity) > MOST_CPUS:
        raise ValueError(f"is more than {MOST_CPUS:,} CPUs, which is surely a slip")
    return quantity


Cpu = Annotated[str, AfterValidator(_cpus), Field(json_schema_extra={"pattern": _CPUS.pattern})]
"""CPUs as Kubernetes has them: `2`, `0.5` or `500m`."""


def matching(pattern: re.Pattern[str], why: str) -> AfterValidator:
    """A check of a text: the whole of it is as the pattern says. `why`: what is wrong with others, and how they are."""

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(why)
        return text

    return AfterValidator(check)


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


def check_host(host: str) -> str:
    """The host if it can be the name of one (RFC 1123) or is an address, else ValueError.

    What ends in a number is an address, or nothing: no top-level domain is a number, and programs read it as one, also
    0x7f000001.
    """
    with contextlib.suppress(ValueError):
        if ip_address(host) and "%" not in host:  # which begins an interface of one machine, and takes any text
            return host
    labels = host.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        raise ValueError(f"has the host {host!r}, which is no address: four numbers of 0 to 255, such as 10.0.0.30")
    if len(host) > 253 or not all(_HOST_LABEL.fullmatch(label) for label in labels):
        raise ValueError(
            f"has the host {host!r}, which no host can be called: parts of 1 to 63 letters, digits and '-', with a "
            f"letter or digit at both ends, and a point between two of them"
        )
    return host


def check_dns_label(name: str, *, longest: int) -> str:
    """The name if it is a DNS label of at most `longest` characters that begins with a letter, else ValueError."""
    if not _DNS_LABEL.fullmatch(name):
        raise ValueError(
            "is not a DNS label: use small letters, digits and '-', begin with a letter and do not end with '-'"
        )
    if len(name) > longest:
        raise ValueError(
            f"has {len(name)} characters; {longest} at most, since longer names would be cut and could collide"
        )
    return name
