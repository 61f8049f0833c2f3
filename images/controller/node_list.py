"""slurmctld's list of nodes, asked for once for all parts of the agent that look at it.

As text: `--json` is several times as long.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass, field
from typing import Final, Protocol

from images.common.command import Result
from images.common.wait import Clock

FRESH_SECONDS: Final = 0.9
"""For so long an answer serves everybody: a bit less than the agent's own second."""
SHARE: Final = 5.0
"""An answer that took long, with thousands of nodes, serves for so many times that."""
LONGEST_SECONDS: Final = 10.0

# Free text (the reason, a comment) comes after these in a line, and nothing before them has blanks in it but the
# operating system's name, which slurmd tells.
_NODE: Final = re.compile(r"^NodeName=(\S+)")
_STATE: Final = re.compile(r"\sState=(\S+)")
_REASON: Final = re.compile(r"\sReason=(\S+)")


@dataclass(frozen=True, kw_only=True)
class NodeRecord:
    """A node record, as far as it matters here."""

    name: str
    states: frozenset[str]
    """`IDLE`, `DYNAMIC_NORM`, `NOT_RESPONDING` and the like."""
    reason: str = ""
    """Its first word."""


def parse_nodes(text: str) -> list[NodeRecord]:
    """Records in the output of `scontrol show nodes --oneliner`."""
    found = []
    for line in text.splitlines():
        name, state, reason = _NODE.search(line), _STATE.search(line), _REASON.search(line)
        if name is not None and state is not None:
            states = frozenset(state[1].split("+"))
            found.append(NodeRecord(name=name[1], states=states, reason=reason[1] if reason is not None else ""))
    return found


class Control(Protocol):
    """The part of slurmctld's control that is needed here."""

    def nodes_text(self) -> str | None:
        """All node records, one a line; None where slurmctld does not answer."""
        ...

    def undrain(self, nodes: str) -> Result:
        """Let nodes take jobs."""
        ...

    def delete_node(self, name: str) -> Result:
        """Remove the record of one."""
        ...


@dataclass(kw_only=True)
class NodeList:
    """The list, and what changes it. Threads may share it."""

    slurmctld: Control
    clock: Clock = field(default_factory=Clock)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _records: list[NodeRecord] | None = field(default=None, init=False)
    _until: float = field(default=float("-inf"), init=False)

    def nodes(self, *, newest: bool = False) -> list[NodeRecord] | None:
        """All records, or None where slurmctld does not answer. `newest`: as they are now, not a moment ago."""
        with self._lock:
            began = self.clock.now()
            if newest or self._records is None or began >= self._until:
                text = self.slurmctld.nodes_text()
                self._records = None if text is None else parse_nodes(text)
                ended = self.clock.now()
                self._until = ended + min(max(FRESH_SECONDS, SHARE * (ended - began)), LONGEST_SECONDS)
            return self._records

    def undrain(self, nodes: str) -> Result:
        """Let nodes take jobs."""
        self._forget()
        return self.slurmctld.undrain(nodes)

    def delete_node(self, name: str) -> Result:
        """Remove the record of one."""
        self._forget()
        return self.slurmctld.delete_node(name)

    def _forget(self) -> None:
        with self._lock:
            self._records = None
