"""Weights of nodes, as the stack file has them for pools.

Slurm takes a new weight of a node at any time, so workers are not told of it: a change would need new pods. But
slurmctld goes back to what a record was made with when it reads its files again or starts (24.11.5 and 26.05.5, tried),
and a node that registers brings none. So the configuration agent looks again and again. A weight that is gone from the
stack file is gone with the reading of the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from images.common.slurm_records import compress
from images.controller.configuration import Files
from images.controller.slurmctld import Slurmctld

WEIGHTS_FILE: Final = "pool.weights"
"""File of the ConfigMap: pools and the weights of their nodes, one a line (slurm/conf.py)."""

POLL_SECONDS: Final = 2.0
SHARE: Final = 5.0
"""A look that took long, with thousands of nodes, is followed by a pause of so many times that."""


class WeightKeeper:
    """Gives nodes the weights of their pools. Those of pools without one are left alone."""

    def __init__(self, *, slurmctld: Slurmctld, published: Callable[[], Files], log: Callable[[str], None]) -> None:
        self._slurmctld, self._published, self._log = slurmctld, published, log
        self._next = 0.0
        self._refused: dict[str, str] = {}
        """Pool -> what slurmctld said last of its weight, which is told once."""

    def round(self) -> None:
        """Look once, at most every `POLL_SECONDS`, and only where a pool has a weight."""
        now = self._slurmctld.clock.now()
        wanted = re.findall(r"(?m)^(\S+) (\d+)$", self._published().get(WEIGHTS_FILE, ""))
        if not wanted or now < self._next:
            return
        nodes = self._slurmctld.weights()
        self._next = now + POLL_SECONDS + SHARE * (self._slurmctld.clock.now() - now)
        for pool, weight in wanted:
            others = [name for name, has in nodes.items() if name.rpartition("-")[0] == pool and has != weight]
            if others:
                self._weigh(pool, compress(others), weight)

    def _weigh(self, pool: str, hosts: str, weight: str) -> None:
        result = self._slurmctld.weigh(hosts, weight)
        if result.ok:
            self._log(f"{hosts}: weight {weight}")
        elif self._refused.get(pool) != result.message:  # one that has just left spoils it for all, until the next look
            self._log(f"{hosts}: weight {weight} is not taken: {result.message}")
        self._refused[pool] = "" if result.ok else result.message
