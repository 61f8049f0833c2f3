"""When a figure of `make bench` counts as better or worse."""

from __future__ import annotations

import time
from itertools import combinations
from math import comb
from typing import Any

import pytest

from tests.bench.compare import EXACT, LEVEL, chance, compare, differences, judge, other_machine, rarest
from tests.unit.bench.records import row, run

FIVE = (1.00, 1.02, 1.04, 1.06, 1.08)


def shifted(*, by: float) -> list[float]:
    return [value * by for value in FIVE]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], 2 / 252),  # U = 0 of tables for n = m = 5
        ([1, 2, 3, 4, 6], [5, 7, 8, 9, 10], 4 / 252),
        ([1, 2, 3, 4], [5, 6, 7, 8], 2 / 70),
        ([1, 2, 3], [4, 5, 6], 2 / 20),
        ([1, 3, 5, 7], [2, 4, 6, 8], 48 / 70),
        ([5, 5, 5, 5], [5, 5, 5, 5], 1),
    ],
)
def test_the_chance_is_that_of_the_exact_mann_whitney_test(old: list[float], new: list[float], expected: float) -> None:
    assert chance(old, new) == pytest.approx(expected)
    assert chance(new, old) == pytest.approx(expected)


def test_ties_are_counted_like_every_way_to_deal_the_samples_out() -> None:
    old, new = [1.0, 2.0, 2.0, 3.0], [2.0, 3.0, 4.0, 4.0, 5.0]
    both = sorted([*old, *new])
    ranks = {value: sum(2 * (other < value) + (other == value) for other in both) for value in both}
    sums = [sum(ranks[both[at]] for at in chosen) for chosen in combinations(range(9), 4)]
    observed = sum(ranks[value] for value in old)
    expected = 2 * min(sum(s <= observed for s in sums), sum(s >= observed for s in sums)) / len(sums)
    assert chance(old, new) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("old", "new", "ways"),
    [
        ([1, 1, 3, 4, 4], [2, 3, 4, 4, 5], 84),
        ([1, 1, 1, 5, 6], [2, 4, 6, 7, 7], 28),
        ([2, 3, 3, 4, 5], [3, 4, 6, 7, 7], 30),
        ([3, 5, 6, 6, 6], [2, 3, 4, 5, 7], 98),
    ],
)
def test_ties_get_the_middle_of_their_ranks(old: list[float], new: list[float], ways: int) -> None:
    """Counted by hand. With the first, the last or no shared rank for ties, each of them comes out otherwise."""
    assert chance(old, new) == pytest.approx(ways / 252)
    assert chance(new, old) == pytest.approx(ways / 252)
    assert chance(old[::-1], new[::-1]) == pytest.approx(ways / 252)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([0.0] * 30 + [1.0] * 10, [0.0] * 20 + [1.0] * 20, 0.0220686),  # sum 1420 of 1620, variance 7594.9: z = 2.2892
        ([float(n) for n in range(40)], [n + 0.5 for n in range(40)], 0.8512),  # sum 1600 of 1620, variance 10800
        ([float(n) for n in range(25)], [n + 25.0 for n in range(25)], 1.4157e-9),  # z = 312 / 51.54
        ([2.0] * 30, [2.0] * 30, 1.0),
        ([0.0] * 20 + [1.0] * 2, [0.0] * 20 + [1.0] * 2, 1.0),
    ],
)
def test_many_samples_get_the_normal_approximation(old: list[float], new: list[float], expected: float) -> None:
    assert chance(old, new) == pytest.approx(expected, rel=1e-3)
    assert chance(new, old) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("older", "newer", "exact"), [(20, 20, True), (4, 36, True), (20, 21, False), (4, 37, False)])
def test_the_test_is_exact_up_to_40_samples_together(older: int, newer: int, exact: bool) -> None:
    assert EXACT == 40
    found = chance([float(n) for n in range(older)], [1000.0 + n for n in range(newer)])
    assert (found == pytest.approx(2 / comb(older + newer, older), rel=1e-6)) is exact


def test_many_samples_take_no_time() -> None:
    began = time.process_time()
    chance([n % 7 + n / 1000 for n in range(1000)], [n % 7 + n / 999 for n in range(1000)])
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("new", "ways", "verdict"),
    [
        ([4.5, 6.5, 7, 8, 9], 8, "worse"),  # U = 2: p = 0.032
        ([3.5, 5.5, 7, 8, 9], 14, "same"),  # U = 3: p = 0.056
        ([3.5, 4.5, 7, 8, 9], 24, "same"),  # U = 4: p = 0.095
    ],
)
def test_the_level_is_5_percent(new: list[float], ways: int, verdict: str) -> None:
    found = judge(row("a", 1, 2, 3, 5, 6), row("a", *new))
    assert LEVEL == 0.05
    assert found.chance == pytest.approx(ways / 252)
    assert found.verdict == verdict


def test_rows_of_other_units_are_not_compared() -> None:
    found = judge(row("a", *FIVE, unit="s"), row("a", *shifted(by=1000), unit="ms"))
    assert (found.verdict, found.chance, found.change) == ("other unit", None, None)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({}, []),
        ({"kernel": "6.2", "python": "3.12"}, []),
        ({"memory_gib": 23.4}, []),
        ({"memory_gib": 31.3}, ["23.5 and 31.3 (GiB of memory)"]),
        ({"cpu": "Another", "cores": 4}, ["A CPU and Another (CPU)", "2 and 4 (cores)"]),
        ({"cpu": ""}, ["A CPU and unknown (CPU)"]),
    ],
)
def test_machines_differ_by_cpu_cores_and_memory(change: dict[str, Any], parts: list[str]) -> None:
    assert other_machine(run().machine, {**run().machine, **change}) == parts


def test_slower_beyond_noise_is_worse_and_faster_is_better() -> None:
    assert judge(row("a", *FIVE), row("a", *shifted(by=1.3))).verdict == "worse"
    assert judge(row("a", *shifted(by=1.3)), row("a", *FIVE)).verdict == "better"


def test_a_clear_but_small_difference_is_the_same() -> None:
    """The ranks tell the runs apart, but two runs of one machine differ by as much for other reasons."""
    found = judge(row("a", *FIVE), row("a", *shifted(by=1.09)))
    assert found.chance is not None
    assert found.chance <= LEVEL
    assert found.verdict == "same"


def test_a_large_difference_of_medians_in_overlapping_samples_is_the_same() -> None:
    found = judge(row("a", 1, 2, 3, 4, 5), row("a", 1.5, 2.5, 4.5, 5.5, 2))
    assert found.verdict == "same"


def test_one_slow_sample_makes_nothing_worse() -> None:
    assert judge(row("a", *FIVE), row("a", *FIVE[:4], 60)).verdict == "same"


def test_three_samples_are_too_few_and_four_are_enough() -> None:
    assert judge(row("a", 1, 1, 1), row("a", 9, 9, 9)).verdict == "too few"
    assert judge(row("a", 1, 1.1, 1.2, 1), row("a", 9, 9, 9, 8)).verdict == "worse"
    assert rarest(3, 3) > LEVEL >= rarest(4, 4)


def test_rows_are_matched_by_name_and_nodes() -> None:
    old = run(row("a", *FIVE), row("b", *FIVE, nodes=100), row("b", *FIVE, nodes=300))
    new = run(row("b", *shifted(by=2), nodes=300), row("a", *FIVE), row("b", *FIVE, nodes=100))
    found = {(item.row.name, item.row.nodes): item.verdict for item in compare(old, new)}
    assert found == {("b", 300): "worse", ("a", None): "same", ("b", 100): "same"}


def test_new_and_gone_rows_are_told_but_not_those_of_parts_that_were_not_measured() -> None:
    old = run(row("left", *FIVE), row("elsewhere", *FIVE, part="other"))
    new = run(row("came", *FIVE), parts=["some"], complete=False)
    assert [(item.row.name, item.verdict) for item in compare(old, new)] == [("came", "new"), ("left", "gone")]


def test_the_change_is_a_share_of_the_older_median() -> None:
    (found,) = compare(run(row("a", *FIVE)), run(row("a", *shifted(by=1.5))))
    assert found.change == pytest.approx(0.5)


def test_what_makes_runs_incomparable_is_told() -> None:
    busy = run(load_at_start=[1.5, 1, 1], machine={**run().machine, "cores": 2, "cpu": "Another"})
    assert differences(run(), run()) == []
    notes = "\n".join(differences(run(), busy))
    assert "cpu: A CPU before, Another now" in notes
    assert "busy when the newer run began (load 1.5)" in notes
    assert "older" not in notes
    assert "not those of abc1234" in "\n".join(differences(run(dirty=True), run()))
