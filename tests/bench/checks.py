"""Whether what a kept file holds can be used: each value of the kind it should be, so that no reader meets another."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tests.bench.row import Row

Check = Callable[[Any], bool]


class BadValueError(Exception):
    """What is wrong, and where in the file."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond what a float holds
        return False


def _is_sample(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _list_of(check: Check, least: int = 0) -> Check:
    return lambda value: isinstance(value, list) and len(value) >= least and all(check(item) for item in value)


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


_MACHINE: Mapping[str, tuple[Check, str]] = {
    "cpu": (_is_text, "text"),
    "cores": (_is_count, "a whole number of at least 1"),
    "memory_gib": (lambda value: _is_sample(value) and value > 0, "a number above 0"),
    "kernel": (_is_text, "text"),
    "python": (_is_text, "text"),
}
_RECORD: Mapping[str, tuple[Check, str]] = {
    "date": (_is_text, "text"),
    "commit": (_is_text, "text"),
    "dirty": (_is_truth, "true or false"),
    "load_at_start": (_list_of(_is_sample, 3), "a list of three numbers"),
    "parts": (_list_of(_is_text), "a list of names"),
    "complete": (_is_truth, "true or false"),
    "failed": (_is_text, "text"),
    "left_out": (_list_of(_is_text), "a list of texts"),
}
_ROW: Mapping[str, tuple[Check, str]] = {
    "part": (_is_text, "text"),
    "name": (lambda value: _is_text(value) and bool(value), "text that is not empty"),
    "unit": (_is_text, "text"),
    "goal": (_or_none(_is_number), "a number or null"),
    "note": (_is_text, "text"),
    "nodes": (_or_none(_is_count), "null or a whole number of at least 1"),
    "worst": (_is_truth, "true or false"),
}
_OPTIONAL = {"failed", "left_out", "unit", "goal", "note", "nodes", "worst"}


def check_record(document: Mapping[str, Any]) -> None:
    """All but the rows. Raises BadValueError."""
    _check(document, _RECORD, {"machine"}, "")
    if not isinstance(document.get("machine"), dict):
        raise BadValueError(f"machine: must be an object, not {_shown(document.get('machine'))}")
    _check(document["machine"], _MACHINE, set(document["machine"]), "machine: ")


def rows_of(found: Any) -> list[Row]:
    """The rows, at least one, each there once. Raises BadValueError."""
    if not isinstance(found, list):
        raise BadValueError(f"rows: must be a list, not {_shown(found)}")
    if not found:
        raise BadValueError("has no rows: nothing was measured")
    rows: dict[tuple[str, int | None], int] = {}
    made = []
    for number, values in enumerate(found, start=1):
        row = _row(values, number)
        if row.key in rows:
            raise BadValueError(f"{_where(values, number)}: has the name and nodes of row {rows[row.key]}")
        rows[row.key] = number
        made.append(row)
    return made


def _row(values: Any, number: int) -> Row:
    where = _where(values, number)
    if not isinstance(values, dict):
        raise BadValueError(f"{where}: must be an object, not {_shown(values)}")
    _check(values, _ROW, {"samples"}, f"{where}: ")
    samples = values.get("samples")
    if not isinstance(samples, list) or not samples:
        raise BadValueError(f"{where}: samples: must be a list of at least one number, not {_shown(samples)}")
    for sample in samples:
        if not _is_sample(sample):
            raise BadValueError(f"{where}: samples: each must be a number of at least 0, not {_shown(sample)}")
    return Row(**values)


def _where(values: Any, number: int) -> str:
    """A row, by its place and, where it has one, its name."""
    name = values.get("name") if isinstance(values, dict) else None
    nodes = values.get("nodes") if isinstance(values, dict) else None
    if not isinstance(name, str):
        return f"row {number}"
    return f"row {number} ({name}{'' if nodes is None else f', {_shown(nodes)} nodes'})"


def _check(values: Mapping[str, Any], checks: Mapping[str, tuple[Check, str]], others: set[str], where: str) -> None:
    if unknown := sorted(set(values) - set(checks) - others):
        raise BadValueError(f"{where}{_shown(unknown[0])} is not known")
    for name, (check, wanted) in checks.items():
        if name not in values:
            if name in _OPTIONAL:
                continue
            raise BadValueError(f"{where}{name}: is missing")
        if not check(values[name]):
            raise BadValueError(f"{where}{name}: must be {wanted}, not {_shown(values[name])}")


def _shown(value: Any) -> str:
    """A value in a message of one line."""
    try:
        text = repr(value)
    except ValueError:  # a whole number of too many digits to be written
        return "a number that is too large"
    return text if len(text) <= 60 else f"{text[:57]}..."
