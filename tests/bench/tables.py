"""The figures of a run as a Markdown table, beside those of an earlier one where there is one.

A row is worse (or better) if both hold:

- The ranks of the samples say so: the two-sided Mann-Whitney test gives at most `LEVEL`. It asks how many of all ways
  to deal the samples out to two runs would put them as far apart as they are; `DEALS` of them are tried.
- The medians differ by at least `NOISE`. Two runs on one machine differ by some percent for reasons that repeating a
  measurement within a run does not show: what is in caches, where etcd's files lie, what else the machine does.

With three samples or fewer on each side no outcome is rare enough: such rows have too few.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from math import comb

from tests.bench.figures import Row, Run, number

LEVEL = 0.05
"""So often, or less, equal runs may look as different as these."""

NOISE = 0.10
"""Share by which medians must differ."""

DEALS = 20_000


def show(run: Run) -> str:
    """The figures of one run, with the columns of docs/benchmarks/README.md."""
    lines = [[name(row), median(row), row.spread, row.told_goal, run.commit, row.note] for row in run.rows]
    table = _table([["what", "median", "spread", "goal", "commit", "note"], *lines])
    return "\n".join([table, *_remarks("this run", run)])


def side_by_side(old: Run, new: Run) -> str:
    """Rows of both runs; then those of the newer one alone, and what the older one had in the same parts."""
    before, now = ({row.key: row for row in run.rows} for run in (old, new))
    lines = [["what", "before", "spread", "now", "spread", "change", "verdict"]]
    for key in dict.fromkeys([*now, *(key for key, row in before.items() if row.part in new.parts)]):
        then, row = before.get(key), now.get(key)
        if then is None or row is None:
            only = then or row
            assert only
            cells = [median(only), only.spread]
            lines.append([name(only), *(["", "", *cells] if row else [*cells, "", ""]), "", "new" if row else "gone"])
            continue
        change = f"{row.median / then.median - 1:+.0%}" if then.median else ""
        lines.append([name(row), median(then), then.spread, median(row), row.spread, change, verdict(then, row)])
    return "\n".join([_table(lines), *_differences(old, new), *_remarks("before", old), *_remarks("now", new)])


def name(row: Row) -> str:
    return row.name if row.nodes is None else f"{row.name}, {row.nodes:,} nodes"


def median(row: Row) -> str:
    return f"{number(row.median)} {row.unit}"


def verdict(before: Row, now: Row) -> str:
    """What became of a row. Less is better."""
    sizes = len(before.samples), len(now.samples)
    if 2 / comb(sum(sizes), sizes[0]) > LEVEL:  # even runs that do not overlap would be no surprise
        return "too few"
    if abs(now.median - before.median) < NOISE * before.median or chance(before.samples, now.samples) > LEVEL:
        return "same"
    return "worse" if now.median > before.median else "better"


def chance(old: Sequence[float], new: Sequence[float]) -> float:
    """How likely two equal runs lie this far apart, in either direction: the p. Ties share the middle rank."""
    ordered = sorted([*old, *new])
    ranks = [bisect_left(ordered, value) + bisect_right(ordered, value) for value in (*old, *new)]
    expected = len(old) * sum(ranks)

    def apart(dealt: Iterable[int]) -> int:
        return abs(len(ranks) * sum(dealt) - expected)

    observed, deals = apart(ranks[: len(old)]), random.Random(0)
    return sum(apart(deals.sample(ranks, len(old))) >= observed for _ in range(DEALS)) / DEALS


def _table(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    head, *others = (
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )
    return "\n".join([head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *others])


def _differences(old: Run, new: Run) -> list[str]:
    """By what the machines differ: times of different ones say nothing of the sources."""
    return [
        f"{what}: {old.machine.get(what)} before, {new.machine.get(what)} now"
        for what in sorted({*old.machine, *new.machine})
        if old.machine.get(what) != new.machine.get(what)
    ]


def _remarks(which: str, run: Run) -> list[str]:
    """Why its figures may be hard to believe."""
    remarks = [f"left out: {what}" for what in run.left_out]
    if run.load_at_start[0] > run.machine["cores"] / 2:
        remarks.append(f"the machine was busy when it began (load {run.load_at_start[0]:g})")
    if run.dirty:
        remarks.append(f"the sources were not those of {run.commit}")
    if run.failed:
        remarks.append(f"it ended early: {run.failed}")
    return [f"{which}: {remark}" for remark in remarks]
