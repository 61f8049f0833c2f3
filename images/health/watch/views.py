"""What is known about each node, from all who look: its own checks, the tests that ran on it, and its machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from images.health.node_tests.results import Record as Measured
from images.health.node_tests.results import decode as decode_tests
from images.health.report import decode
from images.health.watch.slurm import Record
from images.health.watch.view import Finding, NodeView


class Watching(Protocol):
    """The machines below the nodes."""

    def findings(self, records: list[Record], now: float) -> Mapping[str, Finding]:
        """How they are."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Arrival:
    at: int
    seen: float | None


class Views:
    """Puts together what is known. It remembers when something came, as a node's clock may be wrong.

    That counts for tests above all, whose results are as old as the test was long: one that came while the watcher was
    away drains nothing, and the node is soon tested again.
    """

    def __init__(self, machines: tuple[str, Watching] | None = None) -> None:
        """`machines`: the name of the check, and who does it."""
        self._name = machines[0] if machines is not None else ""
        self._machines = machines[1] if machines is not None else None
        self._known: dict[tuple[str, str], _Arrival] | None = None

    def of(self, records: list[Record], now: float) -> list[NodeView]:
        """The nodes with all findings."""
        known: dict[tuple[str, str], _Arrival] = {}
        by_machine = self._machines.findings(records, now) if self._machines is not None else {}
        views = []
        for record in records:
            tests = decode_tests(record.extra)
            findings = dict(self._told(record, tests, known, now))
            if record.name in by_machine:
                findings[self._name] = by_machine[record.name]
            views.append(
                NodeView(
                    name=record.name,
                    states=record.states,
                    pool=record.pool,
                    reason=record.reason,
                    reason_at=record.reason_at,
                    findings=findings,
                    started_at=record.started_at,
                    measured_at=max((float(test.at) for test in tests.values()), default=None),
                )
            )
        self._known = known
        return views

    def _told(
        self, record: Record, tests: Mapping[str, Measured], known: dict[tuple[str, str], _Arrival], now: float
    ) -> Iterator[tuple[str, Finding]]:
        """What lies in the node's record."""
        for test, found in tests.items():
            arrival = known[record.name, test] = self._arrival((record.name, test), found.at, now)
            yield test, Finding(result=found.result, at=float(found.at), arrived=arrival.seen)
        report = decode(record.comment)
        if report is not None:
            arrival = known[record.name, ""] = self._arrival((record.name, ""), report.at, now)
            for check, result in report.results.items():
                yield check, Finding(result=result, at=float(report.at), arrived=arrival.seen)

    def _arrival(self, what: tuple[str, str], at: int, now: float) -> _Arrival:
        """When it came: now if it was not there a round ago."""
        if self._known is None:
            return _Arrival(at=at, seen=None)
        before = self._known.get(what)
        return before if before is not None and before.at == at else _Arrival(at=at, seen=now)
