"""Which nodes a pool has: those with the lowest numbers, but for those that have jobs when its `max` becomes smaller.

Idle ones leave first; where too many have jobs, those whose jobs end soonest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from images.common.elastic.view import Node, Pool

BUSY, IDLE, BARRED, OFF, LEAVING = range(5)
"""Who stays, in this order. One that is barred stays off, and its record is kept where others take its place, too."""


def members(pool: Pool, nodes: Mapping[str, Node], ends: Mapping[str, float]) -> tuple[str, ...]:
    """Names of `pool.most` nodes, by their numbers. `ends`: when the jobs of a node end at the latest, where known.

    Who leaves already is the last to stay, so that each look chooses the same ones. A node beyond `most` that stayed
    for its job gives its place back when it is off.
    """
    beyond = _beyond(pool, nodes)
    if not beyond:
        return pool.nodes()
    usual = set(pool.nodes())

    def rank(name: str) -> tuple[int, float, int]:
        kind = _kind(nodes.get(name), is_usual=name in usual)
        return kind, -ends.get(name, math.inf) if kind == BUSY else 0.0, _number(name)

    return tuple(sorted(sorted([*usual, *beyond], key=rank)[: pool.most], key=_number))


def are_too_many(pool: Pool, nodes: Mapping[str, Node]) -> bool:
    """Whether some must leave that have jobs, so that it matters when those end."""
    beyond = _beyond(pool, nodes)
    kinds = [_kind(nodes.get(name), is_usual=True) for name in pool.nodes()]
    kinds += [_kind(nodes.get(name), is_usual=False) for name in beyond]
    return bool(beyond) and kinds.count(BUSY) > pool.most


def _beyond(pool: Pool, nodes: Mapping[str, Node]) -> list[str]:
    usual = set(pool.nodes())
    of_pool = (node for node in nodes.values() if node.name.rpartition("-")[0] == pool.name)
    return [node.name for node in of_pool if node.is_cloud and node.name not in usual]


def _kind(node: Node | None, *, is_usual: bool) -> int:
    if node is not None and node.is_awaited:
        return BUSY
    if node is not None and is_usual and (node.is_others or node.is_barred):
        return BARRED if node.is_off else BUSY  # it would lose its drain
    if node is None or node.is_off or (node.is_others and node.is_idle):
        return OFF
    if node.goes_down:
        return LEAVING
    return IDLE if node.is_cloud and (node.is_idle or node.is_down) and not node.is_coming else BUSY


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
