"""The reference of commands: what is committed is what the parsers say."""

from __future__ import annotations

from cli import reference

TEXT = reference.PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_the_parsers_say() -> None:
    assert reference.page() == TEXT, "write it anew: make schema"
