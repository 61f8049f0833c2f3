"""Figures as tables: for the terminal, and in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tests.bench.compare import Comparison
from tests.bench.record import KEPT, Record
from tests.bench.row import Row, number, show

PEERS = KEPT / "peers.json"
NONE = "-"
HEAD = ("what", "median", "spread", "runs", "goal", "met")


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another project's figures for the same work, measured once and written down with their source."""

    name: str
    figures: Mapping[str, Mapping[str, Any]]
    """By name of the row: `best`, in the row's unit, and `text`."""

    def cell(self, row: Row) -> str:
        """Its figure beside ours, and who is ahead."""
        figure = self.figures.get(row.name) if row.nodes is None else None
        if figure is None:
            return ""
        return f"{figure['text']} ({'we are ahead' if row.median < figure['best'] else 'they are ahead'})"


def read_peers(path: Path = PEERS) -> list[Peer]:
    """What is written down; nothing where the file is not there."""
    if not path.exists():
        return []
    found = json.loads(path.read_text(encoding="utf-8"))["peers"]
    return [Peer(name=peer["name"], figures=peer["figures"]) for peer in found]


def cells(row: Row) -> list[str]:
    """A row below `HEAD`."""
    goal = NONE if row.goal is None else f"{row.goal:g} {row.unit}{' (worst)' if row.worst else ''}"
    met = NONE if row.beyond is None else "yes" if row.met else f"no, by {show(row.beyond, row.unit)}"
    spread = f"{number(min(row.samples))}-{number(max(row.samples))}"
    return [row.name, show(row.median, row.unit), spread, str(len(row.samples)), goal, met]


def growth(rows: Iterable[Row]) -> tuple[list[str], list[list[str]]]:
    """Head and lines of a table with a column for each number of nodes: medians, with the highest of several."""
    of_nodes = [row for row in rows if row.nodes is not None]
    numbers = sorted({row.nodes for row in of_nodes if row.nodes is not None})
    found = {row.key: row for row in of_nodes}
    lines = []
    for name in dict.fromkeys(row.name for row in of_nodes):
        present = [found.get((name, nodes)) for nodes in numbers]
        unit = next(row.unit for row in present if row is not None)
        lines.append([f"{name}, {unit}", *(NONE if row is None else _grown(row) for row in present)])
    return ["what", *(f"{nodes:,} nodes" for nodes in numbers)], lines


def _grown(row: Row) -> str:
    highest = f" (up to {number(max(row.samples))})" if len(row.samples) > 1 else ""
    return f"{number(row.median)}{highest}"


def markdown(record: Record, peers: Sequence[Peer] = ()) -> str:
    """Its tables for a message or a page; docs/benchmarks/README.md has some rows of several runs."""
    plain = [row for row in record.rows if row.nodes is None]
    parts = []
    if plain:
        shown = [peer for peer in peers if any(peer.cell(row) for row in plain)]
        head = [*HEAD, *(peer.name for peer in shown)]
        align = ["---", "---:", "---:", "---:", "---:", "---"] + ["---"] * len(shown)
        lines = [[*_with_note(row), *(peer.cell(row) for peer in shown)] for row in plain]
        parts.append(_table(head, align, lines))
    head, lines = growth(record.rows)
    if lines:
        parts.append(_table(head, ["---"] + ["---:"] * (len(head) - 1), lines))
    parts.append(described(record))
    return "\n\n".join(parts)


def _with_note(row: Row) -> list[str]:
    what, *others = cells(row)
    return [what + (f" ({row.note})" if row.note else ""), *others]


def _table(head: Sequence[str], align: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, align, *lines])


def described(record: Record) -> str:
    """Where and when it was measured, in a sentence or two."""
    machine = record.machine
    sources = f"commit {record.commit}{' with changes' if record.dirty else ''}"
    text = (
        f"Measured {record.date[:10]}, {sources}, on {machine['cores']} cores ({machine['cpu']}) with "
        f"{machine['memory_gib']:g} GiB; load at the start {record.load_at_start[0]:g}."
    )
    if not record.complete:
        text += f" Only these parts: {', '.join(record.parts)}."
    if record.failed:
        text += f" The run ended early: {record.failed}."
    return " ".join([text, *(f"Left out: {what}." for what in record.left_out)])


def _add(table: Table, *line: str) -> None:
    """A line of the table as it is: what looks like markup in a name is part of the name."""
    table.add_row(*(Text(cell) for cell in line))


def print_record(record: Record, peers: Sequence[Peer], console: Console) -> None:
    """The tables, for the terminal."""
    plain = [row for row in record.rows if row.nodes is None]
    if plain:
        table = Table(*HEAD, *(escape(peer.name) for peer in peers), "note")
        for row in plain:
            _add(table, *cells(row), *(peer.cell(row) for peer in peers), row.note)
        console.print(table)
    head, lines = growth(record.rows)
    if lines:
        table = Table(*head)
        for line in lines:
            _add(table, *line)
        console.print(table)
    console.print(Text(described(record)))


def print_comparison(found: Sequence[Comparison], notes: Sequence[str], console: Console) -> None:
    """Each row of two runs, and how many of each verdict."""
    table = Table("what", "before", "now", "change", "p", "verdict")
    for item in found:
        row = item.row
        name = row.name if row.nodes is None else f"{row.name}, {row.nodes:,} nodes"
        before = NONE if item.before is None else show(item.before.median, item.before.unit)
        now = NONE if item.verdict == "gone" else show(row.median, row.unit)
        change = NONE if item.change is None else f"{item.change:+.0%}"
        _add(table, name, before, now, change, NONE if item.chance is None else f"{item.chance:.3f}", item.verdict)
    console.print(table)
    verdicts = [item.verdict for item in found]
    console.print(", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)))
    for note in notes:
        console.print(Text(f"note: {note}"))
