"""The reference of commands: what is committed is what the parsers say."""

from __future__ import annotations

import re

from cli import reference
from cli.app import COMMANDS

TEXT = reference.PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_the_parsers_say() -> None:
    assert reference.page() == TEXT, "write it anew: make schema"


def test_each_command_has_a_section_and_a_usage_line() -> None:
    sections = dict(re.findall(r"^## (\S+)\n\n`(\S+)", TEXT, re.MULTILINE))
    assert [*sections] == [*COMMANDS]
    assert all(name == usage.strip("`:") for name, usage in sections.items())


def test_exit_statuses_of_a_command_are_its_own_help_s() -> None:
    assert "`doctor node [--json] NAME`: Say what is wrong with a node. Exit: 0 nothing found, 1 something" in TEXT
    assert TEXT.count(" Exit: ") > 12
