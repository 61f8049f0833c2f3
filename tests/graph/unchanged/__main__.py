"""Writes the graphs anew."""

from __future__ import annotations

from tests.graph.unchanged import STACKS, file_of, lines_of

for name in STACKS:
    file_of(name).write_text("\n".join(lines_of(name)) + "\n", encoding="utf-8")
