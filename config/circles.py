"""Circles in relations between names, such as an account and its parent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def circles(graph: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Circles of a directed graph, each from a name to itself again. No two of them have a name in common.

    Every graph with a circle gives at least one.
    """
    found: list[tuple[str, ...]] = []
    settled: set[str] = set()
    for start in graph:
        if start in settled:
            continue
        path = [start]
        open_ends = [iter(graph.get(start, ()))]
        while path:
            following = next(open_ends[-1], None)
            if following is None:
                settled.add(path.pop())
                open_ends.pop()
            elif following in path:
                circle = path[path.index(following) :]
                if not any(set(circle) & set(other) for other in found):
                    found.append((*circle, following))
            elif following not in settled:
                path.append(following)
                open_ends.append(iter(graph.get(following, ())))
    return found
