"""Removing a directory of which users may have made each part."""

from __future__ import annotations

import subprocess
from pathlib import Path


def remove_tree(directory: Path) -> None:
    """Remove a directory with all that is in it, whoever it belongs to, on its own file system.

    rm(1) follows no link, however fast names change, and goes to any depth. Raises OSError with its first complaint.
    """
    argv = ["rm", "-rf", "--one-file-system", "--", str(directory)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(done.stderr.partition("\n")[0] or f"rm ended with {done.returncode}")
