"""One `up` or `down` at a time."""

from __future__ import annotations

import fcntl
from contextlib import contextmanager
from typing import TYPE_CHECKING

from local import paths
from local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def exclusive() -> Iterator[None]:
    """Hold the lock of this slurmstack directory; the kernel frees it when the process ends, however it ends."""
    paths.cache().mkdir(parents=True, exist_ok=True)
    with (paths.cache() / "lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            msg = f"another slurmstack command is working on {paths.root()}"
            raise LocalError(msg, "wait for it to end, then run again") from error
        yield
