"""The one error of the local cluster that a person is meant to read."""

from __future__ import annotations


class LocalError(Exception):
    """Something a person can understand and act on; shown without a traceback.

    `message` says what is wrong, with the values that matter; `hint` what to do about it (may be empty).
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message
