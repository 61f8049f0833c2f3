"""Numbers of nodes that may also be a part of all."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

MAX_NODES: Final = 10_000
"""Nodes of one cluster at most: far above what Kubernetes is tested to, low enough to catch a slip of the keyboard."""


def _limit(limit: object) -> object:
    """Looked at before its type: else there is a problem for each of the two types."""
    number = isinstance(limit, int) and not isinstance(limit, bool) and limit >= 0
    if not number and not (isinstance(limit, str) and _PERCENT.fullmatch(limit)):
        raise ValueError("is neither a number of nodes nor a part of them such as 10%")
    if isinstance(limit, int) and limit > MAX_NODES:
        raise ValueError(f"is more than the {MAX_NODES} nodes that a cluster may have")
    return limit


_PERCENT: Final = re.compile(r"(100|[1-9]?[0-9])%")
Limit = Annotated[
    Annotated[int, Field(strict=True)] | str,
    BeforeValidator(_limit),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": MAX_NODES},
                {"type": "string", "pattern": f"^{_PERCENT.pattern}$"},
            ]
        }
    ),
]
"""A number of nodes, or a part of all: `3`, `10%`."""
