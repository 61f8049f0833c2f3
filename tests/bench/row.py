"""One figure: what was measured, how often, and what it should be."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Row:
    """Samples of one thing, less being better. A row is known by its name and, where it grows with them, its nodes."""

    part: str
    name: str
    samples: list[float] = field(default_factory=list)
    unit: str = "s"
    goal: float | None = None
    """What the median should not exceed, in the row's unit."""
    note: str = ""
    nodes: int | None = None
    """Of how many nodes this is the figure, where the same is measured for several numbers."""
    worst: bool = False
    """Whether the goal is for the largest sample, not for the median."""

    @property
    def key(self) -> tuple[str, int | None]:
        """What makes rows of two runs the same row."""
        return self.name, self.nodes

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def beyond(self) -> float | None:
        """By how much the goal is missed, at most 0 where it is reached; None where there is none."""
        judged = max(self.samples) if self.worst else self.median
        return None if self.goal is None else judged - self.goal

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None where there is none."""
        return None if self.beyond is None else self.beyond <= 0


def timed(action: Callable[[], object]) -> float:
    """Seconds that an action takes."""
    started = time.monotonic()
    action()
    return time.monotonic() - started


@dataclass(kw_only=True)
class Measuring:
    """Collects the rows of a run."""

    runs: int | None = None
    """How often everything is measured, instead of what each row would do by itself."""
    rows: list[Row] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """What cannot be measured on this machine, and why."""
    part: str = ""
    """The part that measures just now."""

    def times(self, usual: int) -> int:
        """How often to measure what is usually measured so often."""
        return usual if self.runs is None else self.runs

    def measure(
        self,
        name: str,
        action: Callable[[int], float],
        *,
        runs: int,
        goal: float | None = None,
        unit: str = "s",
        note: str = "",
        nodes: int | None = None,
        worst: bool = False,
    ) -> Row:
        """Call an action several times, which returns a sample each time; it gets the number of the run."""
        row = Row(part=self.part, name=name, unit=unit, goal=goal, note=note, nodes=nodes, worst=worst)
        for number in range(self.times(runs)):
            row.samples.append(action(number))
            self.say(f"{_named(row)}: {show(row.samples[-1], unit)}")
        self.rows.append(row)
        return row

    def take(
        self,
        name: str,
        samples: Sequence[float],
        *,
        goal: float | None = None,
        unit: str = "s",
        note: str = "",
        nodes: int | None = None,
        worst: bool = False,
    ) -> Row:
        """A row of samples that were measured on the way."""
        row = Row(
            part=self.part, name=name, samples=list(samples), unit=unit, goal=goal, note=note, nodes=nodes, worst=worst
        )
        self.say(f"{_named(row)}: {', '.join(show(value, unit) for value in samples)}")
        self.rows.append(row)
        return row

    def say(self, text: str) -> None:
        """Tell how far it is; what is printed at the end is not mixed with it."""
        print(f"{time.strftime('%H:%M:%S')} [{self.part}] {text}", file=sys.stderr, flush=True)


def _named(row: Row) -> str:
    return row.name if row.nodes is None else f"{row.name}, {row.nodes} nodes"


def show(value: float, unit: str) -> str:
    """A figure for people."""
    return f"{number(value)} {unit}"


def number(value: float) -> str:
    """Two decimals; three where it is small, one or none where it is large, none of nothing."""
    size = abs(value)
    decimals = 0 if size >= 1000 or not size else 1 if size >= 100 else 2 if size >= 0.1 else 3
    return f"{value:,.{decimals}f}"
