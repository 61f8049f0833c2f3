"""Numbers of nodes that may also be a part of all."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, WithJsonSchema

MAX_NODES: Final = 10_000
"""Nodes of one cluster at most: far above what Kubernetes is tested to, low enough to catch a slip of the keyboard."""

_PERCENT: Final = re.compile(r"(100|[1-9]?[0-9])%")

PART_SCHEMA: Final = WithJsonSchema(
    {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": f"^{_PERCENT.pattern}$"}]}
)


def amount_or_part(what: str, *, most: int, least: int = 0) -> BeforeValidator:
    """A check of a number of something, or a part of all, before pydantic tells of each of the two types."""

    def check(amount: object) -> object:
        number = isinstance(amount, int) and not isinstance(amount, bool) and least <= amount <= most
        part = isinstance(amount, str) and _PERCENT.fullmatch(amount) and int(amount[:-1]) >= least
        if not number and not part:
            raise ValueError(f"is neither a number of {what} from {least} to {most} nor a part of them such as 10%")
        return amount

    return BeforeValidator(check)


Limit = Annotated[int | str, amount_or_part("nodes", most=MAX_NODES), PART_SCHEMA]
"""A number of nodes, or a part of all: `3`, `10%`."""
