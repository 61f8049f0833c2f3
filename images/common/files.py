"""Files that are never seen half-written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(
    path: Path, content: str | bytes, *, mode: int = 0o644, owner: tuple[int, int] | None = None
) -> None:
    """Write `path` so that a reader sees the old content or the new one, and a crash leaves one of the two.

    `owner` is (uid, gid); by default the file belongs to this process.
    """
    data = content.encode() if isinstance(content, str) else content
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if owner is not None:
                os.fchown(file.fileno(), *owner)
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def swap_symlink(link: Path, target: str) -> None:
    """Point `link` at `target` in one step."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)
