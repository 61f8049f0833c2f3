"""Lines on a terminal, in a file, and as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import typer
from rich.console import Console
from rich.text import Text

from cli.logs.lines import Line
from cli.text import plain, printable

_MOST_NOTES = 10
_BAD = ("error", "fatal", "Warning ", "Failed")


def print_lines(lines: Sequence[Line], *, as_json: bool) -> None:
    """One a line. Control characters are blanks, so that no log can move the cursor; JSON writes them as escapes."""
    if as_json:
        for line in lines:
            typer.echo(json.dumps(line.as_data()))
        sys.stdout.flush()
    elif sys.stdout.isatty():
        console = Console(highlight=False, emoji=False)
        for line in lines:
            text = Text(printable(line.text), style="red" if any(word in line.text for word in _BAD) else "")
            head = Text.assemble((line.time.ljust(24), "dim"), " ", (printable(line.source), "cyan"), " ")
            console.print(head + text, soft_wrap=True)
    else:
        for line in lines:
            typer.echo(printable(str(line)))
        sys.stdout.flush()


def print_missing(missing: Sequence[str]) -> None:
    """What could not be read, beside the lines."""
    for line in missing[:_MOST_NOTES]:
        typer.echo(f"not read: {plain(line)}", err=True)
    if len(missing) > _MOST_NOTES:
        typer.echo(f"not read: {len(missing) - _MOST_NOTES} more", err=True)
