"""Rows as CSV, of which a spreadsheet runs nothing."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_FORMULA = re.compile(r"(?![+-]\d+(\.\d+)?\Z)[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
"""How a text begins that is a formula to a spreadsheet, also in full width; a number is none. From OWASP, "CSV
Injection"."""


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A heading and a line for each row. Users choose their jobs' accounts: a formula gets a quote before it."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _harmless(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _harmless(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    # What is read may take a carriage return for a new line, and csv puts no quotation marks around one. What is one
    # cell to us may be several to a spreadsheet that divides at semicolons.
    parts = re.split(r"(?<=[;\t])", value)
    text = "".join(f"'{part}" if _FORMULA.match(part) else part for part in parts)
    # Nor may it move the cursor of who looks at it.
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)
