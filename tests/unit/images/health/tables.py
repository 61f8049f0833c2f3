"""Tables of cases: in words what a row is about, and what goes in and comes out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest

from images.common.health.contract import Result


def table(names: str, rows: Mapping[str, object]) -> pytest.MarkDecorator:
    """A test for each row; its key is its name."""
    return pytest.mark.parametrize(names, list(rows.values()), ids=list(rows))


def outcomes(names: str, rows: Sequence[tuple[object, ...]]) -> pytest.MarkDecorator:
    """A test for each row; what is expected, which comes first, is its name."""
    return pytest.mark.parametrize(f"expected, {names}", rows, ids=[str(row[0]) for row in rows])


def words(result: Result) -> str:
    """A result in one line: `ok`, `warn [node]: the clock is 3 s off`."""
    fault = f" [{result.fault}]" if result.fault else ""
    return f"{result.status.value}{fault}" + (f": {result.message}" if result.message else "")


class Like:
    """Equals all texts of this form; `...` stands for anything."""

    def __init__(self, form: str) -> None:
        self.form = form

    def __eq__(self, other: object) -> bool:
        pattern = ".*".join(re.escape(part) for part in self.form.split("..."))
        return isinstance(other, str) and re.fullmatch(pattern, other, re.DOTALL) is not None

    def __hash__(self) -> int:
        return hash(self.form)

    def __repr__(self) -> str:
        return repr(self.form)
