"""How many nodes may be drained for checks at a time: `3`, or a part of all nodes, `10%`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A number of nodes, or a part of all."""

    number: int
    """Nodes, or per cent of them."""
    percent: bool = False

    @staticmethod
    def parse(text: str) -> Limit:
        """Read `3` or `10%`. Raises ValueError."""
        return Limit(number=int(text.removesuffix("%")), percent=text.endswith("%"))

    def of(self, nodes: int) -> int:
        """How many of this many nodes; of a part that is not 0, at least one."""
        if not self.percent:
            return self.number
        return max(nodes * self.number // 100, 1 if self.number else 0)

    def __str__(self) -> str:
        """As written."""
        return f"{self.number}%" if self.percent else str(self.number)
