"""Copying the image's own root file system into a volume, with words for people about how far it is."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.jail.copy_tree import Progress, Tree, copy, scan
from images.jail.prepare import make_mount_targets

SKIPPED: Final = frozenset({"/proc", "/sys", "/dev", "/jail", "/secrets", "/config"})
"""Of the pod, not of the image. Mount points are skipped besides; each is left as an empty target for a later mount."""

REPORT_SECONDS: Final = 2.0
NO_SPACE: Final = 3


def fill(source: Path, target: Path, log: Callable[[str], None], mounted: frozenset[str]) -> int:
    """Copy all of `source`, or what an interrupted run has left to do; returns the exit code."""
    tree = scan(source, frozenset({*SKIPPED, *(point for point in mounted if point != "/")}))
    free = os.statvfs(target)
    log(f"{len(tree.files)} files, {tree.bytes / 1e6:.0f} MB; free: {free.f_bavail * free.f_frsize / 1e6:.0f} MB")
    try:
        copy(tree, source, target, _reporter(log, tree))
        make_mount_targets(target)
    except OSError as error:
        return _explain(error, tree, target, log)
    return 0


def _explain(error: OSError, tree: Tree, target: Path, log: Callable[[str], None]) -> int:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        state = os.statvfs(target)
        size = state.f_blocks * state.f_frsize / 1e6
        log(
            f"the volume is full: it needs {tree.bytes / 1e6:.0f} MB and room for your users; "
            f"the volume has {size:.0f} MB in all"
        )
        log("Make it larger and run this again; it goes on where it stopped.")
        return NO_SPACE
    log(str(error))
    return 1


def _reporter(log: Callable[[str], None], tree: Tree) -> Progress:
    """Writes a line every few seconds."""
    due = time.monotonic() + REPORT_SECONDS

    def report(files: int, size: int) -> None:
        nonlocal due
        if time.monotonic() < due:
            return
        due = time.monotonic() + REPORT_SECONDS
        percent = 100 * size // max(1, tree.bytes)
        log(f"{files} of {len(tree.files)}, {size / 1e6:.0f} of {tree.bytes / 1e6:.0f} MB ({percent}%)")

    return report
