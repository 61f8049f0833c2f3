"""What the command says when it cannot do what was asked."""

from __future__ import annotations

USAGE = 2
"""Exit status when what was written is wrong: the stack file, an option."""

FAILED = 1
"""Exit status when what was asked could not be done."""


class Failure(Exception):  # noqa: N818  it is no bug of the program
    """One message for the person at the terminal, and what to do about it. Never shown with a traceback."""

    def __init__(self, message: str, *, hint: str = "", code: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code
