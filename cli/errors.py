"""What the command says when it cannot do what was asked."""

from __future__ import annotations

USAGE = 2
"""Exit status when what was written is wrong: the stack file, an option."""

FAILED = 1
"""Exit status when what was asked could not be done."""

REFUSED = 3
"""Exit status when a change is refused because of what it would cost, or because it can never be made."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

CHANGES = 4
"""Exit status of a preview with --detailed-exitcode when there is something to change.

Not the 2 that other tools have for it: a mistyped option or a stack file that is wrong must never look like a change.
"""


class Failure(Exception):  # noqa: N818  it is no bug of the program
    """One message for the person at the terminal, and what to do about it. Never shown with a traceback."""

    def __init__(self, message: str, *, hint: str = "", code: int = FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


class Refused(Failure):
    """A change that is not made: for what it would cost, or because it can never be made."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint, code=REFUSED)
