"""One list of all nodes for everybody in the watcher's pod: who asks slurmctld leaves the answer in a file for others.

With thousands of nodes it is many MiB of JSON.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.common.command import Result, Runner, run

ARGV: Final = ("scontrol", "show", "nodes", "--json")
LIST_TIMEOUT_SECONDS: Final = 20.0
"""For thousands of nodes; slurmctld may be busy."""
FILE: Final = Path("/run/slurmstack/nodes/nodes.json")
"""In a volume of the pod, where it has several containers that look at nodes. Its time is that of the question."""
OLDEST_SECONDS: Final = 20.0
"""An older list is not used. The watcher asks every 2 to 10 s, and an answer may take a while."""


@dataclass(kw_only=True)
class Sharing:
    """A runner of commands that leaves the list of nodes for the others of the pod, if there are any."""

    runner: Runner = run
    file: Path = FILE
    wall: Callable[[], float] = time.time

    def __call__(self, argv: Sequence[str], *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Result:
        """As `images.common.command.run`."""
        began = self.wall()
        result = self.runner(argv, timeout=timeout, env=env)
        if tuple(argv) == ARGV and result.ok and self.file.parent.is_dir():
            # Without fsync: nobody needs it after a restart.
            temporary = self.file.with_suffix(".new")
            temporary.write_text(result.stdout, encoding="utf-8")
            os.utime(temporary, (began, began))
            temporary.replace(self.file)
        return result


@dataclass(kw_only=True)
class Shared:
    """A runner of commands that takes the list of nodes from the file.

    Not one that was asked for before the last command that has changed something: that would be missing in it.
    """

    runner: Runner = run
    file: Path = FILE
    wall: Callable[[], float] = time.time
    _changed_at: float = field(default=float("-inf"), init=False)

    def __call__(self, argv: Sequence[str], *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Result:
        """As `images.common.command.run`."""
        text = self._fresh() if tuple(argv) == ARGV else None
        if text is not None:
            return Result(code=0, stdout=text)
        try:
            return self.runner(argv, timeout=timeout, env=env)
        finally:
            if argv[0] != "squeue" and tuple(argv[:2]) != ARGV[:2]:
                self._changed_at = self.wall()

    def _fresh(self) -> str | None:
        try:
            with self.file.open(encoding="utf-8") as file:
                asked_at = os.fstat(file.fileno()).st_mtime
                return file.read() if asked_at > max(self._changed_at, self.wall() - OLDEST_SECONDS) else None
        except OSError:
            return None
