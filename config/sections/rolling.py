"""How pods of worker pools are replaced when their template changes."""

from __future__ import annotations

from typing import Annotated

from config.base import Section
from config.limits import PART_SCHEMA, amount_or_part


class Rolling(Section):
    """New pods for worker nodes, as these fall idle: idle nodes first, then those whose jobs end soonest."""

    max_unavailable: Annotated[int | str, amount_or_part("nodes", least=1, most=5000), PART_SCHEMA] = "10%"
    """Nodes of a pool that may be away or kept from jobs for it at once: a number, or a percentage of the pool, rounded
    up. Nodes that are away for another reason count, and so do new pods that do not become ready."""
