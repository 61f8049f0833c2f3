"""slurmctld's list of nodes, asked for once for all parts of the agent that look at it.

As text: `--json` is several times as long.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final

from images.common.command import Result
from images.common.slurm_records import NodeRecord, nodes_in
from images.common.wait import Clock
from images.controller.control import Slurmctld

FRESH_SECONDS: Final = 0.9
"""For so long an answer serves everybody: a bit less than the agent's own second."""
SHARE: Final = 5.0
"""An answer that took long, with thousands of nodes, serves for so many times that."""
LONGEST_SECONDS: Final = 10.0


@dataclass(kw_only=True)
class NodeList:
    """The list, and what changes it. Threads may share it."""

    slurmctld: Slurmctld
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
                self._records = None if text is None else nodes_in(text)
                ended = self.clock.now()
                self._until = ended + min(max(FRESH_SECONDS, SHARE * (ended - began)), LONGEST_SECONDS)
            return self._records

    def undrain(self, nodes: str) -> Result:
        """Let nodes take jobs."""
        self._forget()
        return self.slurmctld.undrain(nodes)

    def leave_to_elastic(self, nodes: str) -> Result:
        """Let `elastic` decide which of its nodes take jobs."""
        self._forget()
        return self.slurmctld.leave_to_elastic(nodes)

    def delete_node(self, name: str) -> Result:
        """Remove the record of one."""
        self._forget()
        return self.slurmctld.delete_node(name)

    def _forget(self) -> None:
        with self._lock:
            self._records = None
