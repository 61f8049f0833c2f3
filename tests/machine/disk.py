"""Root file systems of images as disks of a guest machine, which cannot see this machine's directories."""

from __future__ import annotations

import os
from pathlib import Path

from local import files
from tests.machine.programs import Programs

_LAYOUT = 2
"""Part of the names; counted up when the way of making them changes."""

_SIZE, _FILES = "12g", 500_000
"""What the largest image has room in; of a disk that is not full the file takes what is in it."""


def disk(rootfs: Path, programs: Programs) -> Path:
    """Give the disk of a root file system that does not change; made once, beside it, and it goes when that goes."""
    result = rootfs.parent / f"disk{_LAYOUT}-{rootfs.name.removeprefix('rootfs-')}.ext4"
    if not _is_present(result, rootfs):
        with files.hold(rootfs.parent / ".disk.lock", lambda: None):
            if not _is_present(result, rootfs):
                _make(rootfs, result, programs)
    return result


def _is_present(disk: Path, rootfs: Path) -> bool:
    """Not where another root file system has been put in the place of the one that it was made from."""
    return disk.exists() and disk.stat().st_mtime >= rootfs.stat().st_ctime


def _make(rootfs: Path, result: Path, programs: Programs) -> None:
    unfinished = result.with_name(f"{files.UNFINISHED}{os.getpid()}-{result.name}")
    try:
        programs.run(
            "mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal,^resize_inode", "-m", "0", "-b", "4096",
            "-N", str(_FILES), "-E", "nodiscard,lazy_itable_init=1", "-d", str(rootfs), str(unfinished), _SIZE,
            timeout_s=600,
        )  # fmt: skip
        unfinished.rename(result)
    finally:
        unfinished.unlink(missing_ok=True)
