"""What is known about each node, from all who look: its own checks, the tests that ran on it, and its machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from images.common.health.finding import Finding
from images.common.health.report import decode
from images.common.health.slurm import Record
from images.health.node_tests.results import Record as Measured
from images.health.node_tests.results import decode as decode_tests
from images.health.watch.decide import KUBERNETES
from images.health.watch.machines import Machines
from images.health.watch.view import NodeView

_Key = tuple[str, str]
"""Node and test; no test: its report."""
_Arrival = tuple[int, float | None]
"""When it was found, and when that came; None: it was there when the watcher started."""


class Views:
    """Puts together what is known. It remembers when something came, as a node's clock may be wrong.

    That counts for tests above all, whose results are as old as the test was long: one that came while the watcher was
    away drains nothing, and the node is soon tested again.
    """

    def __init__(self, machines: Machines | None = None) -> None:
        self._machines = machines
        self._known: dict[_Key, _Arrival] | None = None

    def of(self, records: Sequence[Record], now: float) -> list[NodeView]:
        """The nodes with all findings."""
        known: dict[_Key, _Arrival] = {}
        by_machine = self._machines.findings(records, now) if self._machines is not None else {}
        views = []
        for record in records:
            tests = decode_tests(record.extra)
            findings = dict(self._told(record, tests, known, now))
            if record.name in by_machine:
                findings[KUBERNETES] = by_machine[record.name]
            views.append(
                NodeView(
                    **vars(record),
                    findings=findings,
                    measured_at=max((float(test.at) for test in tests.values()), default=None),
                )
            )
        self._known = known
        return views

    def _told(
        self, record: Record, tests: Mapping[str, Measured], known: dict[_Key, _Arrival], now: float
    ) -> Iterator[tuple[str, Finding]]:
        """What lies in the node's record."""

        def arrived(what: str, at: int) -> float | None:
            """When it came: now if it was not there a round ago."""
            before = (at, None) if self._known is None else self._known.get((record.name, what))
            _, seen = known[record.name, what] = before if before is not None and before[0] == at else (at, now)
            return seen

        for test, found in tests.items():
            yield test, Finding(result=found.result, at=float(found.at), arrived=arrived(test, found.at))
        report = decode(record.comment)
        if report is not None:
            seen = arrived("", report.at)
            for check, result in report.results.items():
                yield check, Finding(result=result, at=float(report.at), arrived=seen)
