"""Writing a file or a directory all at once; and files that hold locks."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PRIVATE = 0o600
"""Permissions of a file that only its owner may read."""

UNFINISHED = ".unfinished-"
"""How the names of directories begin that are being made."""


def write_whole(path: Path, content: str | bytes, *, mode: int = PRIVATE, durable: bool = True) -> None:
    """Write a file so that whoever reads it finds the old content or the new, never half of it. Raises OSError.

    Its directory is made if it is missing. `durable`: so does the next start after a power cut, for some milliseconds.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # for its owner only, until it is whole
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_directory(target: Path) -> Iterator[Path]:
    """Give a directory to fill; it becomes `target` when the block has ended well, else nothing is left of it.

    Where `target` is there by then, another run was first, and has made the same: its name says what is in it. Raises
    OSError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=target.parent, ignore_cleanup_errors=True) as work:
        directory = Path(work) / "whole"
        directory.mkdir()
        yield directory
        directory.chmod(0o755)
        try:
            directory.rename(target)
        except OSError:
            if not target.is_dir():
                raise


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
