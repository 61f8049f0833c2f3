"""Options that several commands have. Nothing here is slow to load: each command loads what it needs by itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cli.errors import FAILED, USAGE, Failure, Refused


def option(*names: str, **how: Any) -> Any:
    """An option whose default its help tells, or that has none."""
    return typer.Option(*names, show_default=False, **how)


def argument(**how: Any) -> Any:
    """An argument, likewise."""
    return typer.Argument(show_default=False, **how)


def named(text: str) -> Path:
    """A path that was really given: an empty one, as of a shell variable that is not set, would mean this directory."""
    if not text:
        raise typer.BadParameter("is empty; `.` is the directory where you are")
    return Path(text)


def refuse_unless_agreed(question: str, *, name: str = "") -> None:
    """Ask whether to go on. `name`: what has to be typed for that, where a lot is replaced.

    Raises Refused where the answer is another one, or where there is no terminal to ask at.
    """
    if not (sys.stdin.isatty() and (is_typed(question, name) if name else typer.confirm(f"{question}. Go on?"))):
        raise Refused(question, hint="--yes does it")


def is_typed(question: str, name: str) -> bool:
    """Whether somebody types that name, and so knows which cluster it is."""
    return bool(typer.prompt(f"{question}. Type {name} to go on", default="", show_default=False) == name)


@contextmanager
def failing_with(code: int) -> Iterator[None]:
    """What could not be looked at is not the same as something that was found: another exit status."""
    try:
        yield
    except Failure as failure:
        if failure.code == FAILED:
            failure.code = code
        raise


ConfigOption = Annotated[
    Path | None,
    option(
        "--config", "-c", metavar="FILE", help="Stack file. Default: that of $SLURMSTACK_STACK, else Pulumi.dev.yaml."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
StartOption = Annotated[
    str | None,
    option(
        metavar="TIME",
        help="First moment that counts: 7d (ago), 2026-11-01, 2026-11-01T08:00, today (UTC). Default: 30 days "
        "before the end.",
    ),
]
EndOption = Annotated[str | None, option(metavar="TIME", help="Last moment, written in the same way. Default: now.")]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print a comment for a pull request.")]
DetailedOption = Annotated[
    bool, typer.Option("--detailed-exitcode", help="Exit with 4 if there is something to change.")
]

Form = Literal["text", "json", "markdown"]


def form_of(*, as_json: bool, as_markdown: bool) -> Form:
    """What the options ask for. Raises Failure if that is two things."""
    if as_json and as_markdown:
        raise Failure("--json and --markdown contradict each other", hint="leave out one of them", code=USAGE)
    return "json" if as_json else "markdown" if as_markdown else "text"
