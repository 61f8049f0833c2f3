"""The code blocks of the pages that a visitor follows first."""

from __future__ import annotations

import re
from typing import Final

from typer.core import TyperGroup

from cli.app import COMMANDS, load
from tests.stacks import ROOT

PAGES: Final = ("README.md", "docs/local.md", "docs/own-cluster.md", "docs/nebius.md", "docs/first-jobs.md")

AS_USER: Final = ("docs/local.md", "docs/first-jobs.md")
"""Pages of which tests/gate/test_end_to_end.py runs each block that a user types on a login node."""

OF_ADMINISTRATORS: Final = ("make", "slurmstack", ".venv/bin/slurmstack", ".venv/bin/pytest", "export", "pulumi")
"""What a block begins with that is typed anywhere else."""

_FENCED: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    """Each block between fences: its language, which is empty where none is given, and its text."""
    return _FENCED.findall((ROOT / page).read_text(encoding="utf-8"))


def prose(page: str) -> str:
    """The page without its blocks."""
    return _FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))


def typed_by_administrators(page: str) -> list[str]:
    """Lines of shell that are typed at the machine where the project is checked out."""
    texts = [text for language, text in blocks(page) if language == "sh" and text.split()[0] in OF_ADMINISTRATORS]
    shown = [text for language, text in blocks(page) if language == "console"]
    return [
        *(line for text in texts for line in text.splitlines()),
        *(line.removeprefix("# ") for text in shown for line in text.splitlines() if line.startswith("# ")),
    ]


def typed_by_users(page: str) -> list[str]:
    """Blocks of shell that are typed on a login node."""
    return [text for language, text in blocks(page) if language == "sh" and text.split()[0] not in OF_ADMINISTRATORS]


def parsed(arguments: list[str]) -> None:
    """Read them with the real parsers. Raises a usage error of click."""
    name: str | None
    name, *rest = arguments
    assert name in COMMANDS
    group, context = load(name), None
    while True:
        context = group.make_context(name, list(rest), parent=context)
        rest = [*context._protected_args, *context.args]
        if not isinstance(group, TyperGroup) or not rest:
            return
        name, group, rest = group.resolve_command(context, rest)
