"""docs/benchmarks/README.md: each figure is that of a run that is kept, and a goal that was missed says so."""

from __future__ import annotations

import pytest

from tests.bench.figures import KEPT, Row, read

THOUSAND = "1,000 real slurmd on the machine"
"""Head of the table of what was measured with as many nodes."""


def figures() -> list[tuple[int | None, list[str]]]:
    """Number of nodes, and the cells of a row: what, median, spread, goal, commit."""
    nodes, found = None, []
    for line in (KEPT / "README.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and "---" not in line:
            row = [cell.strip() for cell in line[1:-1].split("|")]
            if row[1] == "median":
                nodes = 1000 if row[0] == THOUSAND else None
            else:
                found.append((nodes, row))
    return found


@pytest.fixture(scope="module")
def kept() -> dict[tuple[str, int | None, str], Row]:
    """All rows of all runs, by commit, number of nodes and name."""
    runs = [read(path) for path in sorted(KEPT.glob("2*.json"))]
    return {(run.commit, row.nodes, row.name): row for run in runs for row in run.rows}


@pytest.mark.parametrize(("nodes", "row"), figures(), ids=lambda value: value[0] if isinstance(value, list) else None)
def test_a_figure_is_that_of_its_run(
    nodes: int | None, row: list[str], kept: dict[tuple[str, int | None, str], Row]
) -> None:
    what, *told, commit = row
    found = kept[commit, nodes, what]
    assert told == [found.told_median, found.spread, found.told_goal]
