"""Two runs side by side: which rows are better or worse than noise would make them.

A row is worse (or better) if both hold:

- The ranks of the samples say so: the two-sided Mann-Whitney test gives at most `LEVEL`. It asks how many of all ways
  to deal the samples out to two runs would put them as far apart as they are. Nothing is assumed about how times are
  spread, and one slow sample counts as one. Up to `EXACT` samples, those of both runs together, the ways are counted;
  counting more would take long, and the normal approximation is used, with the corrections for ties and continuity.
- The medians differ by at least `NOISE`. Two runs on one machine differ by some percent for reasons that repeating a
  measurement within a run does not show: what is in caches, where etcd's files lie, what else the machine does.

With three samples or fewer on each side no outcome is rare enough: such rows are said to have too few. Rows of which
the units differ are not compared.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb, sqrt
from statistics import NormalDist
from typing import Any, Literal

from tests.bench.record import Record
from tests.bench.row import Row

LEVEL = 0.05
"""So often, or less, equal runs may look as different as these."""

NOISE = 0.10
"""Share by which medians must differ."""

EXACT = 40
"""Up to so many samples, of both runs together, the test is exact."""

MACHINE = {"cpu": "CPU", "cores": "cores", "memory_gib": "GiB of memory"}
"""What makes a machine another one. Its kernel and Python may change; that is a note below the table."""

SAME_MEMORY = 0.05
"""Share by which the memory of one machine may differ: kernels keep more or less of it for themselves."""

Verdict = Literal["better", "same", "worse", "too few", "other unit", "new", "gone"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One row in both runs."""

    row: Row
    """That of the newer run; of the older one where it is gone."""
    before: Row | None
    verdict: Verdict
    chance: float | None = None
    """The test's p; None where there is no test."""

    @property
    def change(self) -> float | None:
        """Change of the median as a share of the older one."""
        if self.before is None or self.verdict in ("gone", "other unit") or not self.before.median:
            return None
        return self.row.median / self.before.median - 1


def chance(old: Sequence[float], new: Sequence[float]) -> float:
    """How likely two runs without a difference are to lie this far apart, in either direction: the p.

    Ties get the middle of their ranks. Up to `EXACT` samples together it is exact, counted over all ways to choose
    which samples are the older ones; beyond, it is the normal approximation with tie correction and continuity
    correction.
    """
    if not old or not new:
        return 1.0
    ranks = _doubled_ranks([*old, *new])
    return _exact(ranks, len(old)) if len(ranks) <= EXACT else _approximate(ranks, len(old))


def _exact(ranks: Sequence[int], older: int) -> float:
    """Of doubled ranks; the first of them are those of the older samples."""
    observed = sum(ranks[:older])
    ways: list[Counter[int]] = [Counter({0: 1})] + [Counter() for _ in range(older)]
    for rank in ranks:
        for chosen in range(older, 0, -1):
            for total, number in ways[chosen - 1].items():
                ways[chosen][total + rank] += number
    below = sum(number for total, number in ways[-1].items() if total <= observed)
    above = sum(number for total, number in ways[-1].items() if total >= observed)
    return float(min(Fraction(1), Fraction(2 * min(below, above), comb(len(ranks), older))))


def _approximate(ranks: Sequence[int], older: int) -> float:
    """As `_exact`, taking the sum of ranks for normally distributed, with tie correction and continuity correction."""
    together, newer = len(ranks), len(ranks) - older
    ties = sum(size**3 - size for size in Counter(ranks).values())
    variance = older * newer / 12 * (together + 1 - ties / (together * (together - 1)))
    if variance <= 0:  # all are equal
        return 1.0
    apart = abs(sum(ranks[:older]) - older * (together + 1)) / 2
    return min(1.0, 2 * NormalDist().cdf(-max(0.0, apart - 0.5) / sqrt(variance)))


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the rank of each value, so that the middle of two ranks is whole too."""
    ordered = sorted(values)
    return [bisect_left(ordered, value) + bisect_right(ordered, value) + 1 for value in values]


def rarest(old: int, new: int) -> float:
    """The smallest chance that so many samples can show: no overlap at all."""
    return min(1.0, 2 / comb(old + new, old)) if old and new else 1.0


def judge(before: Row, after: Row) -> Comparison:
    """What became of a row. Less is better."""
    if before.unit != after.unit:
        return Comparison(row=after, before=before, verdict="other unit")
    if rarest(len(before.samples), len(after.samples)) > LEVEL:
        return Comparison(row=after, before=before, verdict="too few")
    found = chance(before.samples, after.samples)
    apart = abs(after.median - before.median) >= NOISE * abs(before.median)
    verdict: Verdict = "same"
    if found <= LEVEL and apart:
        verdict = "worse" if after.median > before.median else "better"
    return Comparison(row=after, before=before, verdict=verdict, chance=found)


def compare(old: Record, new: Record) -> list[Comparison]:
    """All rows of the newer run, then what the older one had besides in the parts that both have measured."""
    before = {row.key: row for row in old.rows}
    known = {row.key for row in new.rows}
    found = [
        judge(before[row.key], row) if row.key in before else Comparison(row=row, before=None, verdict="new")
        for row in new.rows
    ]
    gone = [row for row in old.rows if row.key not in known and row.part in new.parts]
    return found + [Comparison(row=row, before=row, verdict="gone") for row in gone]


def other_machine(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """By what two machines are different ones; nothing where they may be the same."""
    return [
        f"{old[name] or 'unknown'} and {new[name] or 'unknown'} ({what})"
        for name, what in MACHINE.items()
        if not _equal(name, old[name], new[name])
    ]


def _equal(name: str, old: Any, new: Any) -> bool:
    return bool(abs(old - new) <= SAME_MEMORY * old) if name == "memory_gib" else bool(old == new)


def differences(old: Record, new: Record) -> list[str]:
    """Why the two may be hard to compare."""
    notes = [
        f"{name}: {old.machine.get(name)} before, {new.machine.get(name)} now"
        for name in sorted({*old.machine, *new.machine})
        if old.machine.get(name) != new.machine.get(name)
    ]
    for which, record in (("older", old), ("newer", new)):
        cores = record.machine.get("cores") or 1
        if record.load_at_start[0] > cores / 2:
            notes.append(f"the machine was busy when the {which} run began (load {record.load_at_start[0]:g})")
        if record.dirty:
            notes.append(f"the sources of the {which} run were not those of {record.commit}")
    return notes
