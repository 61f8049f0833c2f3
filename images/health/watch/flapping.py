"""How long a check has to be well before its drain is lifted, where it has failed again and again.

Else a node whose check fails in every other interval is drained and resumed once a minute, and takes a job each time.
The first drain for a check in 24 hours is lifted as soon as the check is well (with a warning: after a minute of it);
the n-th only when it has been well for
`min(60 s * 2^(n-2), 1 h)` without a break. Kept in memory: a restart forgets how long to wait, never a drain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from images.health.contract import Status
from images.health.watch.view import NodeView

WINDOW_SECONDS: Final = 24 * 3600.0
FIRST_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 3600.0


def wait_of(drains: int) -> float:
    """Seconds that a check has to be well after this many drains in the window, the present one included."""
    if drains < 2:
        return 0.0
    doublings = min(drains - 2, 16)  # far beyond the longest wait, and a small number still
    return min(FIRST_SECONDS * 2.0**doublings, LONGEST_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A drain that is not lifted yet though its check is well."""

    node: str
    check: str
    drains: int
    """In the window, the present one included."""
    seconds: float
    """How long the check has to be well."""
    is_new: bool
    """Of this drain nothing was said before."""


@dataclass(frozen=True, kw_only=True)
class _Drain:
    check: str
    drains: int
    well_since: float | None = None
    told: bool = False


class Flapping:
    """Counts the drains of each node and check."""

    def __init__(self) -> None:
        self._drained: dict[tuple[str, str], list[float]] = {}
        self._present: dict[str, _Drain] = {}

    def holds(self, views: Iterable[NodeView], now: float) -> list[Hold]:
        """Look at all nodes, once a round; the drains that are to stay for now. `now`: as in `decide`."""
        before, self._present = self._present, {}
        self._drained = {
            key: recent
            for key, times in self._drained.items()
            if (recent := [time for time in times if now - time < WINDOW_SECONDS])
        }
        return [hold for view in views if (hold := self._look(view, before.get(view.name), now)) is not None]

    def lifted(self, node: str) -> None:
        """Its drain is lifted: what comes next is another one, however soon."""
        self._present.pop(node, None)

    def _look(self, view: NodeView, drain: _Drain | None, now: float) -> Hold | None:
        own = view.own
        if own is None:
            return None
        if drain is None or drain.check != own.check:
            drain = _Drain(check=own.check, drains=self._count(view, own.check, now))
        finding = view.findings.get(own.check)
        well = finding is not None and finding.clears(view.reason_at, now)
        since = drain.well_since if drain.well_since is not None else now
        # What fails only when it has lasted begins with a warning, also where a pod that restarts forgets for how long.
        is_warning = finding is not None and finding.result.status is Status.WARN
        seconds = max(wait_of(drain.drains), FIRST_SECONDS if is_warning else 0.0)
        held = well and now - since < seconds
        self._present[view.name] = replace(drain, well_since=since if well else None, told=drain.told or held)
        if not held:
            return None
        return Hold(node=view.name, check=own.check, drains=drain.drains, seconds=seconds, is_new=not drain.told)

    def _count(self, view: NodeView, check: str, now: float) -> int:
        """Count a drain that was not there a round ago; how many there were in the window."""
        times = self._drained.setdefault((view.name, check), [])
        finding = view.findings.get(check)
        # Somebody who cordons a machine twice a day has a reason: that is no check that cannot make up its mind.
        if finding is not None and finding.declared and finding.unwanted_since is None:
            return 1
        times.append(now if view.reason_at is None else min(view.reason_at, now))
        return len(times)
