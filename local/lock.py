"""One `up` or `down` at a time, one build at a time: files that hold locks."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from local import paths
from local.errors import LocalError


@contextmanager
def hold(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a lock; `on_wait` is called where somebody else has it. The kernel frees it however the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def exclusive() -> Iterator[None]:
    """Hold the lock of this slurmstack directory. `LocalError` where another command has it."""

    def refuse() -> None:
        msg = f"another slurmstack command is working on {paths.root()}"
        raise LocalError(msg, "wait for it to end, then run again")

    with hold(paths.cache() / "lock", refuse):
        yield
