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
from tests.bench.report import (
    README,
    Peer,
    cells,
    growth,
    markdown,
    print_comparison,
    print_record,
    read_peers,
    update_readme,
)
from tests.bench.row import Measuring, Row, number
from tests.unit.bench.records import row, run

SLINKY = Peer(name="Slinky", figures={"a": {"best": 12.9, "text": "12.9-13.1 s"}})


def test_a_row_has_median_spread_runs_goal_and_whether_it_is_met() -> None:
    assert cells(row("a", 5, 1, 2, goal=3)) == ["a", "2.00 s", "1.00-5.00", "3", "3 s", "yes"]
    assert cells(row("a", 3.5, goal=3))[-1] == "no, by 0.50 s"
    assert cells(row("a", 3.0, goal=3))[-1] == "yes"
    assert cells(row("a", 3.5))[-2:] == ["-", "-"]


def test_a_goal_may_be_for_the_worst_of_all_runs() -> None:
    assert cells(row("a", 1, 2, 5, goal=3, worst=True))[-2:] == ["3 s (worst)", "no, by 2.00 s"]
    assert cells(row("a", 1, 2, 3, goal=3, worst=True))[-1] == "yes"
    assert cells(row("a", 0, 0, unit="jobs", goal=0, worst=True))[1:] == ["0 jobs", "0-0", "2", "0 jobs (worst)", "yes"]


def test_other_units_are_shown() -> None:
    assert cells(row("a", 1500, unit="MiB", goal=2000))[1:] == ["1,500 MiB", "1,500-1,500", "1", "2000 MiB", "yes"]


def test_rows_by_number_of_nodes_become_columns() -> None:
    rows = [row("b", 1, nodes=100), row("c", 5, unit="MiB", nodes=100), row("b", 2, 4, nodes=1000), row("a", 1)]
    assert growth(rows) == (
        ["what", "100 nodes", "1,000 nodes"],
        [["b, s", "1.00", "3.00 (up to 4.00)"], ["c, MiB", "5.00", "-"]],
    )


def test_markdown_has_both_tables_and_says_what_was_measured() -> None:
    text = markdown(run(row("a", 1, goal=2, note="of 5"), row("b", 3, nodes=100), left_out=["engine (no `pulumi`)"]))
    assert "| what | median | spread | runs | goal | met |" in text
    assert "| a (of 5) | 1.00 s | 1.00-1.00 | 1 | 2 s | yes |" in text
    assert "| what | 100 nodes |\n| --- | ---: |\n| b, s | 3.00 |" in text
    assert "Measured 2026-11-22, commit abc1234, on 2 cores (A CPU) with 23.5 GiB; load at the start 0.1." in text
    assert "Left out: engine (no `pulumi`)." in text


def test_a_partial_or_broken_run_says_so() -> None:
    text = markdown(run(row("a", 1), complete=False, failed="some: it broke", dirty=True))
    assert "Only these parts: some." in text
    assert "ended early: some: it broke." in text
    assert "abc1234 with changes" in text


def test_a_peers_figure_stands_beside_ours_with_who_is_ahead() -> None:
    text = markdown(run(row("a", 4), row("z", 1)), [SLINKY])
    assert "| met | Slinky |" in text
    assert "| 12.9-13.1 s (we are ahead) |" in text
    assert "(they are ahead)" in markdown(run(row("a", 13)), [SLINKY])
    assert "Slinky" not in markdown(run(row("z", 1)), [SLINKY])


def test_the_recorded_peers_name_their_source() -> None:
    for peer in json.loads((README.parent / "docs/benchmarks/peers.json").read_text(encoding="utf-8"))["peers"]:
        assert peer["source"]
        for figure in peer["figures"].values():
            assert figure["best"] > 0
    assert [peer.name for peer in read_peers()] == ["Slinky"]


class Named(Measuring):
    """Measures nothing, and knows the names of what it should have."""

    def measure(self, name: str, action: Callable[[int], float], **_: Any) -> Row:
        del action
        return self.take(name, [1.0])


def test_the_recorded_figures_are_of_rows_that_we_measure() -> None:
    """A row that gets another name would else lose the figure beside it without a word."""
    bench, cluster = Named(), MagicMock(engine="kubectl")
    for measure in (apply.stack, apply.setting, scaling.scaling, start.controller, jobs.array):
        measure(bench, cluster)
    names = {row.name for row in bench.rows}
    for peer in read_peers():
        assert set(peer.figures) <= names


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.012345, "0.012"), (0.5, "0.50"), (12.345, "12.35"), (123.45, "123.5"), (-0.04, "-0.040"), (1234.5, "1,234")],
)
def test_figures_have_as_many_decimals_as_they_deserve(value: float, text: str) -> None:
    assert number(value) == text


def test_the_readme_gets_the_tables_between_its_markers(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n", encoding="utf-8")
    for _ in range(2):
        update_readme(run(row("a", 1)), [], readme)
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- bench:begin -->\n| what |")
    assert text.endswith("\n<!-- bench:end -->\nafter\n")
    assert "old" not in text
    assert text.count("| a |") == 1


@pytest.mark.parametrize("text", ["", "<!-- bench:begin -->", "<!-- bench:end --><!-- bench:begin -->"])
def test_a_readme_without_markers_is_left_alone(tmp_path: Path, text: str) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(text, encoding="utf-8")
    with pytest.raises(RecordError, match="bench:begin"):
        update_readme(run(row("a", 1)), [], readme)
    assert readme.read_text(encoding="utf-8") == text


def test_our_readme_has_the_markers_once() -> None:
    text = README.read_text(encoding="utf-8")
    assert text.count("<!-- bench:begin -->") == text.count("<!-- bench:end -->") == 1


def printed(action: str) -> str:
    out = io.StringIO()
    console = Console(file=out, width=180)
    old, new = run(row("a", 1, 1.1, 1.2, 1.3)), run(row("a", 2, 2.1, 2.2, 2.3), row("b", 5, nodes=300))
    if action == "record":
        print_record(new, [SLINKY], console)
    else:
        print_comparison(compare(old, new), ["the machine was busy"], console)
    return out.getvalue()


def test_the_terminal_shows_a_run() -> None:
    text = printed("record")
    assert "2.15 s" in text
    assert "300 nodes" in text
    assert "we are ahead" in text


@pytest.mark.parametrize("name", ["[/x]", "a [bold]b[/bold]", "[red", "c:\\", ":smile:"])
def test_what_looks_like_markup_is_shown_as_it_is(name: str) -> None:
    out = io.StringIO()
    console = Console(file=out, width=180)
    found = run(
        row(name, 1, 1, 1, 1, note=f"n {name}"), row(name, 5, nodes=300), failed=f"f {name}", left_out=[f"l {name}"]
    )
    print_record(found, [SLINKY, Peer(name=f"p {name}", figures={})], console)
    print_comparison(compare(found, found), [f"i {name}"], console)
    text = out.getvalue()
    for shown in (f"n {name}", f"f {name}", f"l {name}", f"i {name}", f"{name}, s", f"{name}, 300 nodes"):
        assert shown in text


def test_each_unit_is_shown_where_they_differ() -> None:
    out = io.StringIO()
    found = compare(run(row("a", 1, 1, 1, 1)), run(row("a", 1500, unit="ms")))
    print_comparison(found, [], Console(file=out, width=180))
    assert "1.00 s" in out.getvalue()
    assert "1,500 ms" in out.getvalue()
    assert "1 other unit" in out.getvalue()


def test_the_terminal_shows_a_comparison() -> None:
    text = printed("comparison")
    assert "+87%" in text
    assert "worse" in text
    assert "0.029" in text
    assert "1 worse, 1 new" in text
    assert "note: the machine was busy" in text
