"""Checks that cannot tell for long on few nodes of a pool, while the others can: that is a fault of these nodes.

Unknown is neither well nor ill, as long as many do not know: then it is the check, or what all ask. But a node whose
tool hangs for a quarter of an hour while the same tool answers everywhere else is broken, and only says so by silence.
Kept in memory: a restart of the watcher begins to count anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from images.health.contract import Result, Status
from images.health.watch.view import Finding, NodeView

LONG_SECONDS: Final = 900.0
LEAST_PEERS: Final = 3
"""So many nodes of the pool have to be well by that check."""
FEW: Final = 10
"""One of so many nodes that have the check; one node may always be it."""

_Key = tuple[str, str]


@dataclass(kw_only=True)
class _Peers:
    well: int = 0
    unknown: int = 0


class Unchecked:
    """Counts for how long each check has not been able to tell."""

    def __init__(self) -> None:
        self._since: dict[_Key, float] = {}

    def judged(self, views: Iterable[NodeView], now: float) -> list[NodeView]:
        """The same nodes, with a failure of class node in the place of each such finding. Once a round."""
        views = list(views)
        before, self._since = self._since, {}
        peers: dict[_Key, _Peers] = defaultdict(_Peers)
        for view in views:
            for check, finding in view.findings.items():
                if not finding.is_fresh(now) or finding.declared or finding.lost:
                    continue
                if finding.result.status is Status.NOT_CHECKED:
                    self._since[view.name, check] = before.get((view.name, check), now)
                    peers[view.pool, check].unknown += 1
                else:
                    peers[view.pool, check].well += finding.result.status is not Status.FAIL
        return [self._judge(view, peers, now) for view in views]

    def _judge(self, view: NodeView, peers: dict[_Key, _Peers], now: float) -> NodeView:
        failed: dict[str, Finding] = {}
        for check, finding in view.findings.items():
            seconds = now - self._since.get((view.name, check), now)
            others = peers[view.pool, check] if seconds >= LONG_SECONDS else _Peers()
            few = others.unknown == 1 or others.unknown * FEW <= others.well + others.unknown
            if others.well >= LEAST_PEERS and few:
                message = f"not checked for {seconds / 60:.0f} min while its peers are well: {finding.result.message}"
                result = Result(status=Status.FAIL, fault="node", message=message)
                failed[check] = replace(finding, result=result)
        return replace(view, findings={**view.findings, **failed}) if failed else view
