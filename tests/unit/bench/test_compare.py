"""When a figure of `make bench` counts as better or worse."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.bench.compare import LEVEL, chance, compare, differences, judge, rarest
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


def test_many_samples_are_no_problem() -> None:
    assert chance([float(n) for n in range(40)], [n + 0.5 for n in range(40)]) > 0.5


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
