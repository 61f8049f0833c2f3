"""Reading files that users can write, or put something else in the place of."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read_untrusted(path: Path, most: int) -> bytes | None:
    """The content of a regular file; None where there is nothing of that name.

    No link is followed, and no FIFO holds this up. Raises OSError for all that is no file, or has more than `most`
    bytes. The way to it is the caller's business (jail_view.open_inside).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return content
