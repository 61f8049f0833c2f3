"""Nodes as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from cli.health.nodes import Node, Nodes
from cli.text import ago, open_console, plain

SHORT = 24
"""Characters of an administrator's reason in the table."""

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red", "not checked": "magenta"}
_BASES = ("IDLE", "MIXED", "ALLOCATED", "DOWN", "ERROR", "FUTURE", "UNKNOWN")
_SILENT = {"DYNAMIC_NORM", "NOT_RESPONDING"}
"""Flags that are not shown by name: the nodes of a pool are all dynamic, and the other is the asterisk."""


def as_data(nodes: Nodes, *, namespace: str, failing: bool = False) -> dict[str, Any]:
    """The nodes for scripts, all or those that are not well. Keys are only ever added (docs/health.md)."""
    shown = nodes.bad if failing else nodes.nodes
    return {
        "namespace": namespace,
        "at": nodes.at,
        "nodes": [{**node.data, "health": node.verdict} for node in shown],
        "counts": nodes.counts,
    }


def print_table(nodes: Nodes, *, failing: bool = False) -> None:
    """A table for people, of all nodes or of those that are not well, and how many there are of each kind."""
    console = open_console()
    shown = nodes.bad if failing else nodes.nodes
    if shown:
        table = Table(box=None, pad_edge=False)
        for name in ("NODE", "STATE", "CHECKED", "DRAINED FOR"):
            table.add_column(name, no_wrap=True)
        table.add_column("RESULT", overflow="fold")
        for node in shown:
            first, *more = _lines(node)
            table.add_row(node.name, _state(node), _checked(node), _drained_for(node), first)
            for line in more:
                table.add_row("", "", "", "", line)
        console.print(table)
    counts, total = nodes.counts, len(nodes.nodes)
    asleep = f", {counts['asleep']} asleep" if counts["asleep"] else ""
    kinds = f"{counts['well']} well, {counts['failing']} failing, {counts['unknown']} unknown{asleep}"
    console.print(f"{total} node{'' if total == 1 else 's'}: {kinds}", soft_wrap=True)


def _state(node: Node) -> Text:
    """As Slurm's commands write it: `MIXED+DRAIN`, and `DOWN*` for a node that does not answer."""
    base = next((state for state in _BASES if state in node.record.states), "")
    flags = sorted(node.record.states - {base} - _SILENT)
    words = [base + ("" if node.answers else "*"), *flags]
    return Text(
        "+".join(word for word in words if word), style="red" if node.record.is_closed or not node.answers else ""
    )


def _checked(node: Node) -> Text:
    if node.fresh and node.age is not None:
        return Text(f"{ago(node.age)} ago")
    if node.age is not None and node.age < 0:
        return Text(f"its clock: {ago(-node.age)} ahead", style="magenta")
    return Text("never" if node.age is None else f"{ago(node.age)} ago: old", style="magenta")


def _drained_for(node: Node) -> Text:
    """The check, else the beginning of whatever reason somebody gave."""
    if node.drained_for is not None:
        return Text(plain(node.drained_for), style="red")
    reason = plain(node.record.reason) if node.record.is_closed else ""
    return Text(reason if len(reason) <= SHORT else f"{reason[: SHORT - 3].rstrip()}...")


def _lines(node: Node) -> Iterator[Text]:
    """What the checks found, worst first: at least one line."""
    fails = {found.check for found in node.found if found.status == "fail"}
    if node.drained_for is not None and node.drained_for not in fails:
        # What the watcher itself has found is in no report, and a drain may wait to be lifted.
        yield Text(f"drained for {plain(node.record.reason).removeprefix('health/')}", style="red")
    if not node.answers:
        yield Text("not checked: slurmd does not answer", style=_STYLES["not checked"])
    if node.age is None:
        if node.verdict == "unknown" and node.answers:
            yield Text("not checked: no report", style=_STYLES["not checked"])
        elif node.verdict == "asleep":
            yield Text("asleep")
        return
    was = "" if node.fresh else "was "
    if not node.findings:
        count = len(node.found)
        checks = f"{count} check{'' if count == 1 else 's'}" if count else "no checks"
        style = _STYLES["ok"] if node.fresh else "dim"
        yield Text(f"{was}ok ({checks})" if count else f"{was}not checked: {checks}", style=style)
    for found in node.findings:
        yield Text(was + plain(found.line), style=_STYLES[found.status] if node.fresh else "dim")
