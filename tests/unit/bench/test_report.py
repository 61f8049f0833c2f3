"""Tables of `make bench`."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from rich.console import Console

from tests.bench import apply, jobs, scaling, start
from tests.bench.compare import compare
from tests.bench.record import RecordError
from tests.bench.report import README, Peer, cells, markdown, print_comparison, print_record, read_peers, update_readme
from tests.bench.row import Measuring, Row
from tests.unit.bench.records import row, run

SLINKY = Peer(name="Slinky", figures={"a": {"best": 12.9, "text": "12.9-13.1 s"}})


def test_a_row_has_median_spread_runs_goal_and_whether_it_is_met() -> None:
    assert cells(row("a", 5, 1, 2, goal=3)) == ["a", "2.00 s", "1.00-5.00", "3", "3 s", "yes"]
    assert cells(row("a", 3.5, goal=3))[-1] == "no, by 0.50 s"
    assert cells(row("a", 1, 2, 5, goal=3, worst=True))[-2:] == ["3 s (worst)", "no, by 2.00 s"]
    assert cells(row("a", 1500, unit="MiB"))[1:] == ["1,500 MiB", "1,500-1,500", "1", "-", "-"]


def test_markdown_has_both_tables_and_says_what_was_measured() -> None:
    rows = [row("a", 4, goal=2, note="of 5"), row("b", 3, 5, nodes=100), row("b", 1, nodes=1000)]
    text = markdown(run(*rows, left_out=["engine"], complete=False, failed="some: it broke", dirty=True), [SLINKY])
    assert "| a (of 5) | 4.00 s | 4.00-4.00 | 1 | 2 s | no, by 2.00 s | 12.9-13.1 s (we are ahead) |" in text
    assert "| what | 100 nodes | 1,000 nodes |" in text
    assert "| b, s | 4.00 (up to 5.00) | 1.00 |" in text
    assert "abc1234 with changes, on 2 cores (A CPU) with 23.5 GiB; load at the start 0.1." in text
    for said in ("Left out: engine.", "Only these parts: some.", "ended early: some: it broke."):
        assert said in text
    assert "(they are ahead)" in markdown(run(row("a", 13)), [SLINKY])


class Named(Measuring):
    """Measures nothing, and knows the names of what it should have."""

    def measure(self, name: str, action: Callable[[int], float], **_: Any) -> Row:
        del action
        return self.take(name, [1.0])


def test_the_recorded_figures_of_peers_have_a_source_and_are_of_rows_that_we_measure() -> None:
    """A row that gets another name would else lose the figure beside it without a word."""
    bench, cluster = Named(), MagicMock(engine="kubectl")
    for measure in (apply.stack, apply.setting, scaling.scaling, start.controller, jobs.array):
        measure(bench, cluster)
    assert all(set(peer.figures) <= {row.name for row in bench.rows} for peer in read_peers())
    recorded = json.loads((README.parent / "docs/benchmarks/peers.json").read_text(encoding="utf-8"))["peers"]
    assert all(peer["source"] for peer in recorded)


def test_the_readme_gets_the_tables_between_its_markers(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n", encoding="utf-8")
    for _ in range(2):
        update_readme(run(row("a", 1)), [], readme)
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- bench:begin -->\n| what |")
    assert text.endswith("\n<!-- bench:end -->\nafter\n")
    assert (text.count("old"), text.count("| a |")) == (0, 1)
    readme.write_text("<!-- bench:end --><!-- bench:begin -->", encoding="utf-8")
    with pytest.raises(RecordError, match="bench:begin"):
        update_readme(run(row("a", 1)), [], readme)
    assert README.read_text(encoding="utf-8").count("<!-- bench:begin -->") == 1


def test_the_terminal_shows_a_run_and_a_comparison_and_takes_nothing_for_markup() -> None:
    out = io.StringIO()
    console = Console(file=out, width=180)
    old = run(row("a", 1, 1.1, 1.2, 1.3), row("c", 1, 1, 1, 1))
    new = run(
        row("a", 2, 2.1, 2.2, 2.3, note="[/x]"), row("b", 5, nodes=300), row("c", 1500, unit="ms"), failed="[red c:\\"
    )
    print_record(new, [SLINKY], console)
    print_comparison(compare(old, new), ["the machine was [bold]busy[/bold]"], console)
    for shown in ("2.15 s", "300 nodes", "we are ahead", "[/x]", "[red c:\\", "+87%", "1 worse", "1 new", "1,500 ms"):
        assert shown in out.getvalue(), shown
    assert "note: the machine was [bold]busy[/bold]" in out.getvalue()
