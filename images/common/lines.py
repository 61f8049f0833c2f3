"""Lines of what the kernel tells. It ends them by a line feed, and escapes that alone in names which users choose.

Python takes eleven more characters for ends of lines (`splitlines`, and a carriage return in any text that it reads):
by one of them the name of a process would write lines of its own.
"""

from __future__ import annotations

from pathlib import Path


def lines_in(text: str) -> list[str]:
    """The lines of a text."""
    return text.removesuffix("\n").split("\n") if text else []


def text_of(file: Path, errors: str = "replace") -> str:
    """A file as it is. Raises OSError."""
    return file.read_bytes().decode(errors=errors)
