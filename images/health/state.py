"""What the programs of this folder remember between their runs, in the state directory.

Files of a few hundred bytes, replaced in one step and not forced to disk: a disk that hangs must not hang the report,
and after a crash nothing of it is needed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

AGAIN: Final = "again.json"
LAST: Final = "last.json"
METRICS: Final = "metrics.prom"


@dataclass(frozen=True, kw_only=True)
class State:
    """The state directory. Writing raises OSError, reading nothing."""

    directory: Path

    @contextlib.contextmanager
    def only_me(self, name: str) -> Iterator[bool]:
        """Whether no other process does the same thing now; also where that cannot be found out."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = (self.directory / f"{name}.lock").open("w")
        except OSError:
            yield True
            return
        with lock as file:
            try:
                # Of this process alone: one of flock() would be held by a check that cannot be killed, too.
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                yield False
                return
            yield True

    def write(self, name: str, text: str) -> None:
        """Replace a file."""
        self.directory.mkdir(parents=True, exist_ok=True)
        temporary = self.directory / f".{name}.{os.getpid()}"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.directory / name)

    def read_json(self, name: str) -> Any:
        """What a file holds; None if that is nothing, or no JSON."""
        try:
            return json.loads((self.directory / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def again(self) -> set[str]:
        """Checks that run in every interval until they pass, though they are declared for prologs or epilogs only.

        The node is drained for what they found there, and nothing else would ever lift that.
        """
        known = self.read_json(AGAIN)
        return {str(name) for name in known} if isinstance(known, list) else set()

    def remember_again(self, names: set[str]) -> None:
        """Set the list."""
        if names != self.again():
            self.write(AGAIN, json.dumps(sorted(names)))
