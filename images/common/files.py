"""Files that are never seen half-written."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from images.common.untrusted import read_untrusted

Owner = tuple[int, int]
"""User and group, by their numbers."""


def write_atomically(
    path: Path, content: str | bytes, *, mode: int = 0o644, owner: Owner | None = None, sync: bool = True
) -> None:
    """Write `path` so that a reader sees the old content or the new one, and a crash leaves one of the two.

    By default the file belongs to this process. `sync=False`: where a crash of the machine takes it along anyway.
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
            if sync:
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def own_tree(root: Path, owner: Owner, but: Callable[[Path], bool] = lambda _: False) -> None:
    """Give a directory and all below it to a user, but some: a fresh volume belongs to root, and what root restored."""
    for path in (root, *root.rglob("*")):
        status = path.lstat()
        if (status.st_uid, status.st_gid) != owner and not but(path):
            os.lchown(path, *owner)


def swap_symlink(link: Path, target: str) -> None:
    """Point `link` at `target` in one step."""
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)


def read_document(path: Path, *, most: int = 65536) -> dict[str, Any] | None:
    """A JSON document that strangers may have written; None if it is not there, empty where it is none.

    `most`: bytes; what has more is none.
    """
    try:
        content = read_untrusted(path, most)
        if content is None:
            return None
        found = json.loads(content)
    except (OSError, ValueError, RecursionError):  # a number of thousands of digits is a ValueError, too
        return {}
    return found if isinstance(found, dict) else {}
