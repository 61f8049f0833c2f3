"""What `make bench PARTS=scale` reads and makes, without daemons."""

from __future__ import annotations

import pytest

from tests.bench.row import Measuring
from tests.bench.scale import part
from tests.bench.scale.network import address
from tests.bench.scale.queue import cycles
from tests.bench.scale.sandbox import labels, sections

SDIAG = """\
Main schedule statistics (microseconds):
	Last cycle:   10
	Max cycle:    1100
	Total cycles: 4
	Mean cycle:   900
	Mean depth cycle:  0
	Last queue length: 0

Main scheduler exit:
	End of job queue: 1

Backfilling stats
	Total backfilled jobs (since last slurm start): 0
	Total cycles: 2
	Last cycle when: Sun Nov 22 23:55:31 2026 (1795391731)
	Last cycle: 51356
	Max cycle:  51356
	Mean cycle: 46210
	Last depth cycle: 0

Backfill exit
	End of job queue: 0
"""


def test_cycles_are_read_from_sdiag_in_milliseconds() -> None:
    expected = {"main": 0.9, "main, longest": 1.1, "backfill": 46.21, "backfill, longest": 51.356}
    assert cycles(SDIAG) == expected


def test_a_scheduler_that_has_not_run_has_no_figure() -> None:
    without = "\n".join(line for line in SDIAG.splitlines() if "46210" not in line)
    assert set(cycles(without)) == {"main", "main, longest"}


def test_every_node_has_an_address_of_its_own() -> None:
    addresses = [address(number) for number in range(1000)]
    assert len(set(addresses)) == 1000
    assert all(0 < int(part) < 255 for text in addresses for part in text.split(".")[3:])


def test_a_leaf_switch_has_sixteen_nodes_and_lies_below_one_switch() -> None:
    leaves = [tuple(labels(number).values()) for number in range(1000)]
    assert leaves.count(leaves[0]) == 16
    assert len({leaf[-1] for leaf in leaves}) == len(set(leaves)) == 63


def test_the_stack_has_as_many_nodes_and_no_health() -> None:
    assert sections(300)["worker_nodes"]["default"]["size"] == 300
    assert sections(300)["health"] == {"enabled": False}


def test_numbers_of_nodes_that_do_not_fit_are_left_out_with_what_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALE_NODES", "1000000")
    bench = Measuring()
    part.scale(bench)
    (left_out,) = bench.left_out
    assert left_out.startswith("1000000 slurmd (")
    assert "threads of at most" in left_out
    assert bench.rows == []
