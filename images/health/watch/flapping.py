"""When a drain is not lifted yet, though its check is well.

A node whose check fails in every other interval would be drained and resumed once a minute, and take a job each time:
a drain that comes within an hour after one for the same check was lifted stands for five minutes. So long a warning
lifts no drain after slurmd has started: what fails only when it has lasted begins with a warning, and the checks of a
new pod have forgotten for how long it has. Machines that people cordon are none of this.

Kept in memory: a restart forgets how long to wait, never a drain.
"""

from __future__ import annotations

from typing import Final

from images.common.health.contract import Status
from images.health.watch.decide import KUBERNETES
from images.health.watch.view import NodeView

HOLD_SECONDS: Final = 300.0
AGAIN_SECONDS: Final = 3600.0


class Flapping:
    """Remembers which drains were lifted of late."""

    def __init__(self) -> None:
        self._lifted: dict[tuple[str, str], float] = {}

    def lifted(self, view: NodeView, now: float) -> None:
        """The drain of this node is lifted now."""
        self._lifted = {key: at for key, at in self._lifted.items() if now - at < AGAIN_SECONDS}
        if view.own is not None:
            self._lifted[view.name, view.own.check] = now

    def holds(self, view: NodeView, now: float) -> bool:
        """Whether the drain of this node has to stand for a while longer."""
        if view.own is None or view.own.check == KUBERNETES or view.reason_at is None:
            return False
        finding = view.findings.get(view.own.check)
        if finding is not None and finding.result.status is Status.WARN and now - view.started_at < HOLD_SECONDS:
            return True
        lifted = self._lifted.get((view.name, view.own.check))
        again = lifted is not None and view.reason_at - lifted < AGAIN_SECONDS
        return again and now - view.reason_at < HOLD_SECONDS
