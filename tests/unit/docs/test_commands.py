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
    assert TEXT.count(" Exit: ") > 8


def test_required_options_stand_in_the_usage_line() -> None:
    for usage in ("render --output DIR`", "health run [--json] --node NODE CHECK`", "--version X`"):
        assert usage in TEXT


def test_what_an_argument_or_an_option_takes_is_named() -> None:
    assert "- `KEY` munge, jwt, host-keys or database-password." in TEXT


def test_a_switch_with_another_default_is_said_where_it_is() -> None:
    put_back = "- `--with-jail/--without-jail` Put the jail back, too. Default:"
    sections = dict(re.findall(r"^## (\S+)$(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
    assert f"{put_back} --with-jail." in sections["backup"]
    assert f"{put_back} --without-jail." in sections["upgrade"]


def test_a_text_of_an_option_is_not_cut() -> None:
    assert "What else applies this cluster (Flux, Argo CD) is suspended meanwhile." in TEXT
