"""Copying the image's own root file system into a volume: owners, modes, times, links and extended attributes.

Several tar(1) copy at once, because a shared file system answers each small file slowly but many at once well. After an
interruption all is copied again.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from images.jail.prepare import make_mount_targets

AT_ONCE: Final = 8
BATCH: Final = 4
"""Names that one tar copies."""

SKIPPED: Final = frozenset({"/proc", "/sys", "/dev", "/jail", "/secrets", "/config"})
"""Of the pod, not of the image. Mount points are skipped besides; each is left as an empty target for a later mount."""

_OPENED: Final = ("", "usr", "usr/lib", "usr/share")
"""Directories whose entries are copied beside each other: these have nearly all files."""

REPORT_SECONDS: Final = 2.0
NO_SPACE: Final = 3


def fill(source: Path, target: Path, log: Callable[[str], None], mounted: frozenset[str]) -> int:
    """Copy all of `source`, again what an interrupted run has copied; returns the exit code."""
    skipped = [path[1:] for path in sorted({*SKIPPED, *mounted} - {"/"}) if os.path.lexists(source / path[1:])]
    free = os.statvfs(target)
    log(f"copying the image's root file system; free: {free.f_bavail * free.f_frsize / 1e6:.0f} MB")
    try:
        _copy_all(source, target, skipped, log)
        for path in skipped:
            if (source / path).is_dir():
                (target / path).mkdir(mode=0o755, parents=True, exist_ok=True)
            else:
                (target / path).touch(mode=0o644)
        make_mount_targets(target)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            log(str(error))
            return 1
        log("the volume is full: it needs what the jail's image has, and room for your users; make it larger")
        return NO_SPACE
    return 0


def _copy_all(source: Path, target: Path, skipped: Sequence[str], log: Callable[[str], None]) -> None:
    """Raises OSError at the first thing that fails."""
    opened = [path for path in _OPENED if (source / path).is_dir() and not (source / path).is_symlink()]
    parts: list[list[str]] = []
    for path in opened:
        (target / path).mkdir(mode=0o700, exist_ok=True)
        found = (str(entry.relative_to(source)) for entry in sorted((source / path).iterdir()))
        names = [name for name in found if name not in {*opened, *skipped}]
        parts += [names[at : at + BATCH] for at in range(0, len(names), BATCH)]
    due = time.monotonic() + REPORT_SECONDS
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        try:
            for done, _ in enumerate(pool.map(lambda names: _copy(source, target, names, skipped), parts), 1):
                if time.monotonic() >= due:
                    due = time.monotonic() + REPORT_SECONDS
                    log(f"{100 * done // len(parts)}% of the directories are copied")
        except OSError:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    for path in reversed(opened[1:]):  # last: writing into a directory changes its time
        status = (source / path).stat()
        os.chown(target / path, status.st_uid, status.st_gid)
        shutil.copystat(source / path, target / path)


def _copy(source: Path, target: Path, names: Sequence[str], skipped: Sequence[str]) -> None:
    attributes = ("--xattrs", "--xattrs-include=user.*", "--xattrs-include=security.capability", "--file=-")
    pack = ["tar", "--create", *attributes, f"--directory={source}", "--anchored", "--no-wildcards"]
    pack += [*(f"--exclude={path}" for path in skipped), "--", *names]
    unpack = ["tar", "--extract", *attributes, f"--directory={target}", "--preserve-permissions", "--numeric-owner"]
    with subprocess.Popen(pack, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as packing:
        done = subprocess.run(
            unpack, stdin=packing.stdout, stderr=subprocess.PIPE, text=True, errors="replace", check=False,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
    if done.returncode or packing.returncode:
        full = "No space left" in done.stderr or "quota exceeded" in done.stderr
        said = done.stderr.partition("\n")[0] or f"cannot read all of {', '.join(names)}"
        raise OSError(errno.ENOSPC if full else errno.EIO, said)
