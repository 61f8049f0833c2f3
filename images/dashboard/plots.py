"""Use over the last day, from Prometheus: the points of each plot, ready to be drawn as SVG."""

from __future__ import annotations

import json
import math
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

DAY: Final = 86_400
STEP: Final = 600
"""Seconds between two points: 145 of them are as many as a small plot shows."""

KEPT_SECONDS: Final = 60.0
"""How long an answer serves all pages; it says the same to everybody who may see it."""

TIMEOUT_SECONDS: Final = 2.0
ALL_SECONDS: Final = 4.0
"""For all plots together: pages wait for them. After it no more is asked."""

WIDTH: Final = 480
HEIGHT: Final = 150

Values = Sequence[float | None]
"""One for each step of the last day, the oldest first; None where there was no figure."""


_USE: Final[Mapping[str, Mapping[str, str]]] = {
    "CPUs": {"in use": "max(slurm_jobs_cpus_alloc)", "there": "sum(max by (node) (slurm_node_cpus))"},
    "GPUs": {"in use": "max(slurm_jobs_gpus_alloc)", "there": "sum(max by (node) (slurm_node_gpus))"},
    "Jobs": {"running": "max(slurm_jobs_running)", "pending": "max(slurm_jobs_pending)"},
    "Nodes": {
        "drained or draining": "max(slurm_nodes_drain) + max(slurm_nodes_draining)",
        "there": "max(slurm_nodes)",
        "down": "max(slurm_nodes_down)",
    },
}
"""Title -> label of a line -> query. Names as Slurm's own (26.05: MetricsType=metrics/openmetrics); `max`, as two may
tell the same."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a plot."""

    label: str
    points: tuple[str, ...]
    """Pieces of the line as SVG has them, one for each time without a gap."""
    summary: str
    """In words, for who does not see the plot."""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Lines over the last day. Its vertical axis goes from 0 to `top`."""

    title: str
    lines: tuple[Line, ...]
    top: int


class PrometheusAwayError(Exception):
    """Prometheus does not answer as it should; the message says what it did."""


class Prometheus:
    """A Prometheus server. Its answers are kept for a minute, also that there is none."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self._url = url.rstrip("/")
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: tuple[float, list[Plot] | PrometheusAwayError] | None = None

    def plots(self) -> list[Plot]:
        """Plots that have anything to show. Raises PrometheusAwayError."""
        with self._lock:
            now = self._clock()
            if self._kept is None or now - self._kept[0] > KEPT_SECONDS:
                try:
                    self._kept = now, self._ask(now)
                except PrometheusAwayError as error:
                    self._kept = now, error
            found = self._kept[1]
        if isinstance(found, PrometheusAwayError):
            raise found
        return found

    def _ask(self, now: float) -> list[Plot]:
        end = int(now) // 60 * 60  # a whole step would leave a young cluster without a plot for ten minutes
        until = now + ALL_SECONDS
        plots = []
        for title, queries in _USE.items():
            values = {label: self._range(query, end, until) for label, query in queries.items()}
            if any(value for line in values.values() for value in line):
                plots.append(plot(title, values))
        return plots

    def _range(self, query: str, end: int, until: float) -> Values:
        left = until - self._clock()
        if left <= 0:
            raise PrometheusAwayError(f"not all figures came within {ALL_SECONDS:.0f} s")
        asked = urllib.parse.urlencode({"query": query, "start": end - DAY, "end": end, "step": STEP})
        url = f"{self._url}/api/v1/query_range?{asked}"
        try:
            with urllib.request.urlopen(url, timeout=min(TIMEOUT_SECONDS, left)) as answer:  # noqa: S310  the pod's own setting
                return _values(json.load(answer), end)
        except (OSError, ValueError, LookupError, TypeError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise PrometheusAwayError(str(reason)) from error


def _values(answer: Any, end: int) -> Values:
    found: dict[int, float] = {}
    for series in answer["data"]["result"]:
        found |= {int(at): float(value) for at, value in series["values"]}
    steps = range(end - DAY, end + 1, STEP)
    return [value if math.isfinite(value := found.get(at, math.nan)) else None for at in steps]


def plot(title: str, values: Mapping[str, Values]) -> Plot:
    """Points of the lines of a plot."""
    highest = max((value for line in values.values() for value in line if value is not None), default=0.0)
    top = _round_up(highest)
    return Plot(
        title=title,
        lines=tuple(
            Line(label=label, points=tuple(_pieces(line, top)), summary=_summary(line))
            for label, line in values.items()
        ),
        top=top,
    )


def _round_up(value: float) -> int:
    """1, 2 or 5 times a power of ten, and not less than the value."""
    power = 10 ** max(0, math.floor(math.log10(max(value, 1))))
    return int(next(power * step for step in (1, 2, 5, 10) if power * step >= value))


def _pieces(values: Values, top: int) -> list[str]:
    pieces: list[list[str]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            pieces.append([])
            continue
        x, y = index * WIDTH / (len(values) - 1), HEIGHT * (1 - value / top)
        pieces[-1].append(f"{x:.1f},{y:.1f}")
    # A line needs two ends: a single point is drawn as one that has no length.
    return [" ".join(piece if len(piece) > 1 else piece * 2) for piece in pieces if piece]


def _summary(values: Values) -> str:
    there = [value for value in values if value is not None]
    if not there:
        return "no figures"
    mean = sum(there) / len(there)
    return f"last {there[-1]:.0f}, highest {max(there):.0f}, mean {mean:.1f}"
