"""How many login nodes there are to be. Nothing here asks or changes anything.

more     where there are more sessions than `sessions_per_node` for each node that takes some: as many as they need, at
         once
fewer    by one, where for `idle_timeout` the sessions have filled at most three quarters (FILLED) of one node less

Kubernetes takes the pod with the highest number away, and counts one that leaves until it has ended. So a node that
leaves in the middle, as its machine is drained or its pod gets another image, is made up for by one with a higher
number.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from math import ceil
from typing import Final, Self

FILLED: Final = 0.75
"""Of one node less, at most, for a node to leave: the next few who log in must not bring it back."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What the stack file says of them."""

    least: int
    most: int
    sessions_per_node: int
    idle_seconds: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """As components/elastic.py writes it (slurm/elastic.py). Raises ValueError, KeyError, TypeError."""
        said = json.loads(text)
        return cls(
            least=int(said["min"]),
            most=int(said["max"]),
            sessions_per_node=int(said["sessions_per_node"]),
            idle_seconds=float(said["idle_timeout"]),
        )


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The login nodes at one time."""

    replicas: int
    """That the StatefulSet is to have."""
    leaving: Collection[int]
    """Numbers of pods that leave."""
    sessions: int
    """On the nodes that do not leave, as far as these say it."""
    all_known: bool
    """Whether all of these say it: a node that does not may have any number."""

    @property
    def nodes(self) -> int:
        """Those that take sessions, or will when they have started."""
        return self.replicas - sum(number < self.replicas for number in self.leaving)


def is_roomy(bounds: Bounds, seen: Seen) -> bool:
    """Whether one node less would do, too."""
    fewer = seen.nodes - 1
    return seen.all_known and fewer > 0 and seen.sessions <= FILLED * fewer * bounds.sessions_per_node


def replicas_wanted(bounds: Bounds, seen: Seen, roomy_seconds: float) -> int:
    """What the StatefulSet is to have. `roomy_seconds`: for how long `is_roomy` has held without a break.

    Never more than `most`, whatever the nodes say, unless so many leave that not even `least` others had room below it;
    sessions have no part in that, for fewer than `least` leave for their sake.
    """
    nodes = seen.nodes
    if seen.sessions > nodes * bounds.sessions_per_node:
        nodes = ceil(seen.sessions / bounds.sessions_per_node)
    elif is_roomy(bounds, seen) and roomy_seconds >= bounds.idle_seconds:
        nodes -= 1
    nodes = min(max(nodes, bounds.least), bounds.most)
    wanted = _replicas_with(nodes, seen.leaving)
    return wanted if wanted <= bounds.most else max(bounds.most, _replicas_with(bounds.least, seen.leaving))


def _replicas_with(nodes: int, leaving: Collection[int]) -> int:
    """The fewest with so many that do not leave."""
    replicas = 0
    while nodes > 0:
        nodes -= replicas not in leaving
        replicas += 1
    return replicas
