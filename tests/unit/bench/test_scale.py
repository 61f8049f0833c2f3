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
    unused = "\n".join(line for line in SDIAG.splitlines() if "46210" not in line)
    assert set(cycles(unused)) == {"main", "main, longest"}, "a scheduler that has not run has no figure"


def test_a_thousand_nodes_have_addresses_of_their_own_and_switches_of_sixteen() -> None:
    addresses = [address(number) for number in range(1000)]
    assert len(set(addresses)) == 1000
    leaves = [tuple(labels(number).values()) for number in range(1000)]
    assert leaves.count(leaves[0]) == 16
    assert len({leaf[-1] for leaf in leaves}) == len(set(leaves)) == 63
    assert sections(300)["worker_nodes"]["default"]["size"] == 300


def test_numbers_of_nodes_that_do_not_fit_are_left_out_with_what_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALE_NODES", "1000000")
    bench = Measuring()
    part.scale(bench)
    (left_out,) = bench.left_out
    assert left_out.startswith("1000000 slurmd (")
    assert "threads of at most" in left_out
    assert bench.rows == []
