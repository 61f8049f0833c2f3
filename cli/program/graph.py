"""The resource graph, as data and as a picture."""

from __future__ import annotations

from html import escape
from typing import Any

from cli.program.recording import Recording, Registration
from cli.program.values import printable

ROW = 26
INDENT = 28
WIDTH = 900

_SVG = "http://www.w3.org/2000/svg"


def as_data(recording: Recording) -> list[dict[str, Any]]:
    """Everything registered, in order. Unknown values are `<unknown>`, secret ones `<secret>`."""
    return [
        {
            "type": registration.type,
            "name": registration.name,
            "parent": registration.parent,
            "urn": registration.urn,
            "protect": registration.protect,
            "deletedWith": registration.deleted_with,
            "dependencies": list(registration.dependencies),
            "inputs": printable(registration.inputs),
        }
        for registration in recording
    ]


def as_svg(recording: Recording) -> str:
    """The tree of components and their resources as an SVG picture, one line each."""
    rows = _rows(recording)
    lines = [_row(index, depth, registration) for index, (depth, registration) in enumerate(rows)]
    height = ROW * len(rows) + 20
    return "\n".join(
        [
            f'<svg xmlns="{_SVG}" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="13">',
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *_edges(rows),
            *lines,
            "</svg>",
            "",
        ]
    )


def _rows(recording: Recording) -> list[tuple[int, Registration]]:
    known = recording.by_urn()
    children: dict[str, list[Registration]] = {}
    for registration in recording:
        children.setdefault(registration.parent if registration.parent in known else "", []).append(registration)
    rows: list[tuple[int, Registration]] = []

    def visit(parent: str, depth: int) -> None:
        for child in sorted(children.get(parent, []), key=lambda item: (item.custom, item.name)):
            rows.append((depth, child))
            visit(child.urn, depth + 1)

    visit("", 0)
    return rows


def _edges(rows: list[tuple[int, Registration]]) -> list[str]:
    at = {registration.urn: (index, depth) for index, (depth, registration) in enumerate(rows)}
    edges = []
    for index, (depth, registration) in enumerate(rows):
        if registration.parent in at:
            parent_index, parent_depth = at[registration.parent]
            x, top, bottom = 16 + parent_depth * INDENT, _middle(parent_index) + 8, _middle(index)
            edges.append(f'<path d="M{x} {top}V{bottom}H{10 + depth * INDENT}" fill="none" stroke="#b8c0cc"/>')
    return edges


def _row(index: int, depth: int, registration: Registration) -> str:
    x, y = 10 + depth * INDENT, _middle(index)
    colour = "#326ce5" if registration.custom else "#7a3e9d"
    kind = registration.type.rsplit(":", 1)[1]
    lock = " (protected)" if registration.protect else ""
    return (
        f'<circle cx="{x + 6}" cy="{y}" r="5" fill="{colour}"/>'
        f'<text x="{x + 20}" y="{y + 4}"><tspan font-weight="bold" fill="{colour}">{escape(kind)}</tspan>'
        f' <tspan fill="#333">{escape(registration.name + lock)}</tspan></text>'
    )


def _middle(index: int) -> int:
    return 10 + index * ROW + ROW // 2
