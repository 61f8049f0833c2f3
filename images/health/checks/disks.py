"""disks: room on the jail and on local disks, and whether the pod's own disk can be written to at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from images.common.command import Runner
from images.common.health.contract import Check, Node, Result, fail, not_checked, ok, warn, worst

NAME: Final = "disks"

SECONDS: Final = 3.0
"""Time limit. A jail that hangs keeps several checks waiting, one after another."""

WARN_PERCENT: Final = 90.0
FAIL_PERCENT: Final = 95.0
"""Of the space that users may have, as `df` counts, and of inodes. kubelet ends pods from 90 % on (its default
`nodefs.available<10%`) and removes unused images from 85 % on, so less than 90 % is nothing to speak of."""

ENOUGH_GIB: Final = 200.0
"""So much free space is enough however large the file system is: 5 % of 100 TiB are 5 TiB."""

WRITTEN: Final = ("tmp", "var/spool/slurmd")
"""Below the root: what slurmd and every job write to. It lies on the machine's own disk, which the kernel makes
read-only, or stops, after an error."""

_DISK_ERRORS: Final = frozenset({errno.EROFS, errno.EIO, errno.EUCLEAN, errno.ESHUTDOWN, errno.ENODEV})
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.EOPNOTSUPP, errno.EISDIR})
"""No such directory here, or a file system without files that have no name."""

_GIB: Final = 2**30
_PAGE: Final = 4096


def judge(path: Path, figures: os.statvfs_result, node: Node) -> Result:
    """One file system against the limits."""
    used = figures.f_blocks - figures.f_bfree
    if used < 0 or used + figures.f_bavail <= 0:
        return not_checked(f"{path}: the file system tells no size")
    share = used / (used + figures.f_bavail)  # as `df` counts: what is kept for root counts as neither used nor free
    values, found = {f'disk_used_ratio{{path="{path}"}}': share}, []
    warning = node.limit(NAME, "warn_percent", WARN_PERCENT)
    failure = node.limit(NAME, "fail_percent", FAIL_PERCENT)
    if figures.f_bavail * figures.f_frsize < node.limit(NAME, "enough_gib", ENOUGH_GIB) * _GIB:
        found.append(_against(f"{path}: {{:.0f}} % of the space used", share, warning, failure))
    # Where a file system has no fixed number of inodes (btrfs, some network file systems) these make no sense.
    taken, free = figures.f_files - figures.f_ffree, min(figures.f_favail, figures.f_ffree)
    if 0 <= figures.f_ffree <= figures.f_files and taken + free:
        share = taken / (taken + free)
        values[f'disk_inodes_used_ratio{{path="{path}"}}'] = share
        found.append(_against(f"{path}: {{:.0f}} % of the inodes used", share, warning, failure))
    return worst([*found, ok(**values)])


def _against(text: str, share: float, warning: float, failure: float) -> Result:
    percent = share * 100
    if percent < min(warning, failure):
        return ok()
    return (fail if percent >= failure else warn)("node", f"{text.format(percent)}, {failure:g} % allowed")


def try_to_write(directory: Path) -> Result:
    """Write a file without a name (open(2), O_TMPFILE), which is gone when it is closed."""
    try:
        file = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            os.write(file, b"\0" * _PAGE)
        finally:
            os.close(file)
    except OSError as error:
        if error.errno in _NOT_THERE:
            return ok()
        message = f"cannot write to {directory}: {error.strerror}"
        if error.errno in _DISK_ERRORS:
            return fail("hardware", message)
        if error.errno == errno.ENOSPC:
            return fail("node", message)
        return not_checked(message)
    return ok()


def run(node: Node, _runner: Runner) -> Result:
    """Look at all of them; one that cannot be looked at does not hide the others."""
    paths = [*filter(None, (node.jail, node.homes)), *node.local_disks]
    found = [try_to_write(node.root / directory) for directory in WRITTEN]
    for path in dict.fromkeys(paths):
        try:
            found.append(judge(path, os.statvfs(path), node))
        except OSError as error:
            found.append(not_checked(f"{path}: {error.strerror}"))
    return worst(found)


# Not before a job: a full jail is the same for all nodes, and nothing that a job's start elsewhere would help.
CHECK: Final = Check(name=NAME, run=run, seconds=SECONDS)
