"""When a figure of `make bench` counts as better or worse."""

from __future__ import annotations

import pytest

from tests.bench.compare import chance, compare, differences, judge, other_machine
from tests.unit.bench.records import row, run

FIVE = (1.00, 1.02, 1.04, 1.06, 1.08)


def shifted(*, by: float) -> list[float]:
    return [value * by for value in FIVE]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], 2 / 252),  # U = 0 of tables for n = m = 5
        ([1, 2, 3, 4, 6], [5, 7, 8, 9, 10], 4 / 252),
        ([5, 5, 5, 5], [5, 5, 5, 5], 1),
        # Counted by hand: with the first, the last or no shared rank for ties, each of them comes out otherwise.
        ([1, 1, 3, 4, 4], [2, 3, 4, 4, 5], 84 / 252),
        ([1, 1, 1, 5, 6], [2, 4, 6, 7, 7], 28 / 252),
        ([3, 5, 6, 6, 6], [2, 3, 4, 5, 7], 98 / 252),
        # So many samples get the normal approximation.
        ([0.0] * 30 + [1.0] * 10, [0.0] * 20 + [1.0] * 20, 0.0220686),  # sum 1420 of 1620, variance 7594.9: z = 2.2892
        ([float(n) for n in range(25)], [n + 25.0 for n in range(25)], 1.4157e-9),  # z = 312 / 51.54
        ([2.0] * 30, [2.0] * 30, 1.0),
    ],
)
def test_the_chance_is_that_of_the_mann_whitney_test(old: list[float], new: list[float], expected: float) -> None:
    assert chance(old, new) == pytest.approx(expected, rel=1e-3)
    assert chance(new, old) == pytest.approx(expected, rel=1e-3)


def test_what_counts_as_worse() -> None:
    for old, new, verdict in [
        ((1, 2, 3, 5, 6), (4.5, 6.5, 7, 8, 9), "worse"),  # U = 2: p = 0.032
        ((1, 2, 3, 5, 6), (3.5, 5.5, 7, 8, 9), "same"),  # U = 3: p = 0.056
        (FIVE, shifted(by=1.3), "worse"),
        (shifted(by=1.3), FIVE, "better"),
        (FIVE, shifted(by=1.09), "same"),  # clear, but runs of one machine differ by as much
        (FIVE, (*FIVE[:4], 60), "same"),  # one slow sample
        ((1, 1, 1), (9, 9, 9), "too few"),
        ((1, 1.1, 1.2, 1), (9, 9, 9, 8), "worse"),
    ]:
        assert judge(row("a", *old), row("a", *new)).verdict == verdict, (old, new)
    assert judge(row("a", *FIVE), row("a", *shifted(by=1000), unit="ms")).verdict == "other unit"


def test_rows_are_matched_by_name_and_nodes_and_those_of_other_parts_are_not_gone() -> None:
    old = run(row("a", *FIVE), row("b", *FIVE, nodes=100), row("left", *FIVE), row("elsewhere", *FIVE, part="other"))
    new = run(row("b", *shifted(by=1.5), nodes=100), row("a", *FIVE), row("b", *FIVE, nodes=300), parts=["some"])
    found = {(item.row.name, item.row.nodes): item.verdict for item in compare(old, new)}
    assert found == {("b", 100): "worse", ("a", None): "same", ("b", 300): "new", ("left", None): "gone"}
    assert compare(old, new)[0].change == pytest.approx(0.5)


def test_machines_differ_by_cpu_cores_and_memory_and_what_else_differs_is_told() -> None:
    machine = run().machine
    assert other_machine(machine, {**machine, "kernel": "6.2", "memory_gib": 23.4}) == []
    other = {**machine, "cpu": "Another", "cores": 4, "memory_gib": 31.3}
    assert len(other_machine(machine, other)) == 3
    assert differences(run(), run()) == []
    notes = "\n".join(differences(run(dirty=True), run(load_at_start=[1.5, 1, 1], machine={**machine, "cores": 2})))
    assert "busy when the newer run began (load 1.5)" in notes
    assert "not those of abc1234" in notes
