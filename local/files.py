"""Writing a file all at once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

PRIVATE = 0o600
"""Permissions of a file that only its owner may read."""


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
