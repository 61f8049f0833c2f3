"""Circles in relations between names, such as an account and its parent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter


def circles(graph: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Circles of a directed graph, each from a name to itself again. No two of them have a name in common.

    Every graph with a circle gives at least one. Each begins with the name that comes first in the graph.
    """
    found: list[tuple[str, ...]] = []
    left = {name: list(others) for name, others in graph.items()}
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            around: list[str] = error.args[1][:0:-1]
            first = around.index(next(name for name in graph if name in around))
            found.append((*around[first:], *around[: first + 1]))
            left = {name: [one for one in left[name] if one not in around] for name in left if name not in around}
        else:
            return found
