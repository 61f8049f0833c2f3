"""populate: fills the shared volume with the jail's root file system, once.

The image's own root file system is copied. The marker is written last, so that a half-populated jail is never taken for
a whole one; a jail that is there is never touched, whatever version it has.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from images.common.files import write_atomically
from images.common.mountinfo import WrongFilesystemError, expect_volume, mount_points
from images.common.process import RefusedError, program, required_env
from images.jail.copy_tree import Progress, Tree, copy, scan
from images.jail.prepare import make_mount_targets

JAIL: Final = Path("/jail")
STATE: Final = ".slurmstack"
MARKER: Final = f"{STATE}/populated"
IN_PROGRESS: Final = f"{STATE}/populating"

SKIPPED: Final = frozenset({"/proc", "/sys", "/dev", "/jail", "/secrets", "/config"})
"""Of the pod, not of the image. Mount points are skipped besides; each is left as an empty target for a later mount."""

OURS_IN_AN_EMPTY_VOLUME: Final = frozenset({"lost+found", STATE})
REPORT_SECONDS: Final = 2.0
REFUSED: Final = 2
NO_SPACE: Final = 3


def main() -> int:
    """Entry point."""
    with program("populate") as log:
        try:
            expect_volume(JAIL)
        except WrongFilesystemError as error:
            raise RefusedError(f"nothing was written: {error}") from error
        return populate(Path("/"), JAIL, required_env("JAIL_VERSION"), log, mount_points())


def populate(source: Path, jail: Path, version: str, log: Callable[[str], None], mounted: frozenset[str]) -> int:
    """Fill `jail` from `source`; returns the exit code."""
    marker = jail / MARKER
    if marker.exists():
        log(f"the jail is populated already, with version {_version_of(marker)}; nothing is changed")
        return 0
    foreign = sorted({entry.name for entry in jail.iterdir()} - OURS_IN_AN_EMPTY_VOLUME)
    if foreign and not (jail / IN_PROGRESS).exists():
        log(
            f"the volume has {', '.join(foreign[:5])} and {max(0, len(foreign) - 5)} more in it, not from us: "
            "refusing to write to it"
        )
        log("Use an empty volume, or empty this one by hand.")
        return REFUSED
    if foreign:
        log("going on where an earlier run was interrupted")
    jail.chmod(0o755)  # sshd insists, for a ChrootDirectory
    (jail / STATE).mkdir(mode=0o755, exist_ok=True)
    write_atomically(jail / IN_PROGRESS, version + "\n")

    started = time.monotonic()
    skipped = frozenset({*SKIPPED, *(point for point in mounted if point != "/")})
    tree = scan(source, skipped)
    free = os.statvfs(jail)
    log(f"{len(tree.files)} files, {tree.bytes / 1e6:.0f} MB; free: {free.f_bavail * free.f_frsize / 1e6:.0f} MB")
    try:
        copy(tree, source, jail, _reporter(log, tree))
        make_mount_targets(jail)
    except OSError as error:
        return _explain(error, tree, jail, log)
    _write_marker(jail, version)
    log(f"the jail is populated with version {version} after {time.monotonic() - started:.1f} s")
    return 0


def _write_marker(jail: Path, version: str) -> None:
    """Last of all, when everything else is on the disk."""
    os.sync()
    content = {"version": version, "time": datetime.now(UTC).isoformat(timespec="seconds")}
    write_atomically(jail / MARKER, json.dumps(content) + "\n")
    (jail / IN_PROGRESS).unlink(missing_ok=True)


def _version_of(marker: Path) -> str:
    try:
        return str(json.loads(marker.read_text(encoding="utf-8"))["version"])
    except (ValueError, KeyError, TypeError):
        return "unknown"


def _explain(error: OSError, tree: Tree, jail: Path, log: Callable[[str], None]) -> int:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        state = os.statvfs(jail)
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
