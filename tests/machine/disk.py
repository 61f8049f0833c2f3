"""Root file systems of images as disks of a guest machine, which cannot see this machine's directories."""

from __future__ import annotations

import os
from pathlib import Path

from local import files, lock
from tests.machine.programs import Programs

_LAYOUT = 1
"""Part of the names; counted up when the way of making them changes."""

_SPARE_BYTES, _PER_FILE_BYTES = 32 * 2**20, 512
"""More than the files themselves take: tables of the file system, whose size follows from the number of files."""


def disk(rootfs: Path, programs: Programs) -> Path:
    """Give the disk of a root file system that does not change; made once, beside it, and it goes when that goes."""
    result = rootfs.parent / f"disk{_LAYOUT}-{rootfs.name.removeprefix('rootfs-')}.ext4"
    if not _is_present(result, rootfs):
        with lock.hold(rootfs.parent / ".disk.lock", lambda: None):
            if not _is_present(result, rootfs):
                _make(rootfs, result, programs)
    return result


def _is_present(disk: Path, rootfs: Path) -> bool:
    """Not where another root file system has been put in the place of the one that it was made from."""
    return disk.exists() and disk.stat().st_mtime >= rootfs.stat().st_ctime


def _make(rootfs: Path, result: Path, programs: Programs) -> None:
    size, count = _measure(rootfs)
    blocks = (size + count * _PER_FILE_BYTES + size // 50 + _SPARE_BYTES) // 4096
    unfinished = result.with_name(f"{files.UNFINISHED}{os.getpid()}-{result.name}")
    try:
        programs.run(
            "mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal,^resize_inode", "-m", "0", "-b", "4096",
            "-N", str(count + 1000), "-E", "nodiscard,lazy_itable_init=1", "-d", str(rootfs), str(unfinished),
            f"{blocks * 4}k", timeout_s=600,
        )  # fmt: skip
        unfinished.rename(result)
    finally:
        unfinished.unlink(missing_ok=True)


def _measure(directory: Path) -> tuple[int, int]:
    """Bytes in whole blocks, and the number of files and directories."""
    size, count, seen = 0, 0, set()
    for parent, directories, names in os.walk(directory):
        for name in (*directories, *names):
            found = os.lstat(os.path.join(parent, name))  # noqa: PTH118 - 40,000 of them: quicker than a Path each
            if found.st_ino not in seen:
                seen.add(found.st_ino)
                count += 1
                size += -(-found.st_size // 4096) * 4096
    return size, count
