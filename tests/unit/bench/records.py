"""Runs of `make bench` that never were."""

from __future__ import annotations

from typing import Any

from tests.bench.record import Record
from tests.bench.row import Row

QUIET = {"cpu": "A CPU", "cores": 2, "memory_gib": 23.5, "kernel": "6.1", "python": "3.11"}


def row(name: str, *samples: float, **more: Any) -> Row:
    """A row of the part `some`."""
    return Row(**{"part": "some", "name": name, "samples": list(samples), **more})


def run(*rows: Row, **more: Any) -> Record:
    """A whole run on a quiet machine."""
    values = {
        "date": "2026-11-22T20:00:00Z", "commit": "abc1234", "dirty": False, "machine": QUIET,
        "load_at_start": [0.1, 0.1, 0.1], "parts": ["some"], "complete": True, "rows": list(rows),
    }  # fmt: skip
    return Record(**{**values, **more})
