"""The forms in which commands print a preview, and the options that ask for them."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from cli.errors import USAGE, Failure
from cli.preview.document import Preview
from cli.preview.markdown import markdown

Form = Literal["text", "json", "markdown"]

MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print a comment for a pull request.")]
DetailedOption = Annotated[
    bool, typer.Option("--detailed-exitcode", help="Exit with 4 if there is something to change.")
]


def form_of(*, as_json: bool, as_markdown: bool) -> Form:
    """What the options ask for. Raises Failure if that is two things."""
    if as_json and as_markdown:
        raise Failure("--json and --markdown contradict each other", hint="leave out one of them", code=USAGE)
    return "json" if as_json else "markdown" if as_markdown else "text"


def text_of(preview: Preview, form: Form) -> str:
    """The preview as JSON or as a comment."""
    return markdown(preview).rstrip("\n") if form == "markdown" else json.dumps(preview.as_data(), indent=1)
