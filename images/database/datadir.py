"""The data directory on the volume: made whole or not at all, and of a version that this server can take."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.files import Owner, write_atomically
from images.common.process import RefusedError

VERSION_FILE: Final = "slurmstack-version"
"""In the data directory: the server version that last wrote it."""

_THEIR_VERSION_FILES: Final = ("mariadb_upgrade_info", "mysql_upgrade_info")
"""Where mariadb-upgrade itself notes the version; data that were copied from elsewhere have at most these."""

Version = tuple[int, int, int]


def parse_version(text: str) -> Version | None:
    """`11.8.6` in `mariadbd  Ver 11.8.6-MariaDB-0+deb13u1` and the like."""
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def server_version() -> Version:
    """Of the mariadbd in this image."""
    done = subprocess.run(["/usr/sbin/mariadbd", "--version"], capture_output=True, text=True, check=True)
    version = parse_version(done.stdout)
    if version is None:
        raise RefusedError(f"mariadbd does not say its version: {done.stdout.strip()!r}")
    return version


def data_version(data: Path) -> Version | None:
    """Of the server that last wrote the data; None where nothing says it."""
    for name in (VERSION_FILE, *_THEIR_VERSION_FILES):
        path = data / name
        if path.is_file():
            return parse_version(path.read_text(errors="replace"))
    return None


def write_version(data: Path, version: Version) -> None:
    """Note which server wrote the data."""
    write_atomically(data / VERSION_FILE, ".".join(map(str, version)) + "\n")


def dotted(version: Version) -> str:
    """For messages."""
    return ".".join(map(str, version))


def needs_upgrade(data: Path, server: Version) -> bool:
    """Whether `mariadb-upgrade` has to run. Raises RefusedError if the data are of a newer release.

    A release is the first two numbers: within one, MariaDB promises that files fit both ways.
    """
    found = data_version(data)
    if found is not None and found[:2] > server[:2]:
        raise RefusedError(
            f"the data are of MariaDB {dotted(found)}, and this image has {dotted(server)}: MariaDB cannot go back to "
            "an older release. Use images that have the newer one again, or restore a dump that was made before"
        )
    return found is None or found[:2] < server[:2]


def make(volume: Path, owner: Owner, install: Callable[[Path], None], server: Version) -> Path:
    """The data directory below `volume`; a new one is made beside and renamed when all of it is on the disk.

    `install` fills an empty directory. What a start left behind that was ended in the middle is thrown away.
    """
    data, half_made = volume / "data", volume / "data.new"
    if data.is_dir():
        return data
    if half_made.exists():
        shutil.rmtree(half_made)
    half_made.mkdir(mode=0o700)
    os.chown(half_made, *owner)
    install(half_made)
    write_version(half_made, server)
    os.sync()
    half_made.rename(data)
    descriptor = os.open(volume, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return data
