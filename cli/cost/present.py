"""What a stack costs: as a line in a summary, as a table, and as JSON."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from cli.cost.parts import HOURS_A_MONTH, Cost
from cli.health.present import open_console

_DIGITS = 6
"""Digits after the point of amounts for scripts: more than price lists have, and fewer than sums of floats lose."""

_NAMED = 4
"""Missing prices that one line names; `slurmstack cost` names all."""


def line(cost: Cost) -> str:
    """The cost in one line: `costs 12.00 to 240.00 USD an hour`."""
    missing = list(cost.without_price)
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    named = f" (no price: {', '.join(missing[:_NAMED])}{more})" if missing else ""
    usual = f", {_amount(cost.usual)} on average over a week at least" if cost.weeks else ""
    return f"costs {span(cost)} an hour{usual}{named}"


def span(cost: Cost) -> str:
    """`12.00 to 240.00 USD`, or one amount where the stack is as large at any time."""
    least, most = _amount(cost.least), _amount(cost.most)
    known = "at least " if cost.without_price else ""
    return f"{known}{least if least == most else f'{least} to {most}'} {cost.currency}"


def _amount(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 or value == 0 else f"{value:,.4f}"


def as_data(cost: Cost) -> dict[str, Any]:
    """The cost for scripts. Keys are only ever added to it, never renamed (docs/usage.md)."""
    return {
        "currency": cost.currency,
        "hour": {"min": round(cost.least, _DIGITS), "max": round(cost.most, _DIGITS)},
        "month": {"min": _monthly(cost.usual), "max": _monthly(cost.most)},
        "complete": not cost.without_price,
        "without_price": dict(cost.without_price),
        "parts": [
            {
                "name": part.name,
                "price_key": part.key,
                "min": part.least,
                "min_average": round(part.usual, _DIGITS),
                "max": part.most,
                "price_hour": _rounded(part.price),
                "hour_min": _rounded(part.price, part.least),
                "hour_max": _rounded(part.price, part.most),
            }
            for part in cost.parts
        ],
    }


def _monthly(hourly: float) -> float:
    return round(hourly * HOURS_A_MONTH, _DIGITS)


def _rounded(price: float | None, count: int = 1) -> float | None:
    return None if price is None else round(price * count, _DIGITS)


def print_table(cost: Cost) -> None:
    """A table for people, at most 80 columns wide in a terminal that is no wider."""
    console = open_console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"{cost.currency} AN HOUR", overflow="fold")
    for name in ("MIN", "MAX", "OF ONE", "AT MIN", "AT MAX"):
        table.add_column(name, justify="right", no_wrap=True)
    for part in cost.parts:
        cells = [_cell(_rounded(part.price, count)) for count in (1, part.least, part.most)]
        table.add_row(escape(part.name), f"{part.least:,}", f"{part.most:,}", *cells)
    least = " at least" if cost.without_price else ""
    table.add_section()
    table.add_row(f"an hour{least}", "", "", "", f"{cost.least:,.4f}", f"{cost.most:,.4f}", style="bold")
    month = [f"{_monthly(value):,.2f}" for value in (cost.usual, cost.most)]
    table.add_row(f"{HOURS_A_MONTH} hours{least}", "", "", "", *month, style="bold")
    console.print(table)
    for week in cost.weeks:
        console.print(week, markup=False)
    for key, names in cost.without_price.items():
        console.print(f"no price in prices.{key}: {', '.join(names)}", markup=False)


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:,.4f}"
