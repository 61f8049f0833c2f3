"""How pods of worker pools are replaced when their template changes."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from config.base import Section

_PERCENT = re.compile(r"([1-9][0-9]?|100)%")


def _some_nodes(value: object) -> object:
    """Before pydantic tries one type after the other, and tells of each why it is not that one."""
    if isinstance(value, str) and _PERCENT.fullmatch(value):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 5000:
        return value
    raise ValueError("is neither a number of nodes from 1 to 5000 nor a percentage such as 10%, from 1% to 100%")


SomeNodes = Annotated[
    Annotated[int, Field(strict=True, ge=1, le=5000)] | Annotated[str, Field(pattern=_PERCENT.pattern)],
    BeforeValidator(_some_nodes),
]


class Rolling(Section):
    """New pods for worker nodes, as these fall idle: idle nodes first, then those whose jobs end soonest."""

    max_unavailable: SomeNodes = "10%"
    """Nodes of a pool that may be away or kept from jobs for it at once: a number, or a percentage of the pool, rounded
    up. Nodes that are away for another reason count, and so do new pods that do not become ready."""
