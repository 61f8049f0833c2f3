"""mariadbd: makes its data at the first start, brings older data up to date, and serves slurmdbd."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from images.common.boundary import own_directory
from images.common.files import own_tree, write_atomically
from images.common.mariadb import (
    OPTIONS,
    PASSWORD,
    PROBE,
    RUN,
    SOCKET,
    STATEMENTS,
    options,
    probe_options,
    read_password,
    statements,
)
from images.common.mountinfo import expect_volume
from images.common.process import RefusedError, become, program, required_env
from images.common.wait import wait_for

VOLUME: Final = Path("/var/lib/mysql")
MARIADBD: Final = ("/usr/sbin/mariadbd", f"--defaults-file={OPTIONS}")
CLIENT: Final = ("--no-defaults", f"--socket={SOCKET}", "--user=mysql")
"""Options of a program that talks to the server in this container."""
UPGRADE_START_SECONDS: Final = 600.0
"""For the server that only the upgrade talks to: it may have to recover first."""

VERSION_FILE: Final = "slurmstack-version"
"""In the data directory: the server version that last wrote it."""

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


def write_version(data: Path, version: Version) -> None:
    """Note which server wrote the data."""
    write_atomically(data / VERSION_FILE, f"{dotted(version)}\n")


def dotted(version: Version) -> str:
    """For messages."""
    return ".".join(map(str, version))


def needs_upgrade(data: Path, server: Version) -> bool:
    """Whether `mariadb-upgrade` has to run. Raises RefusedError if the data are of a newer release.

    A release is the first two numbers: within one, MariaDB promises that files fit both ways.
    """
    noted = data / VERSION_FILE
    found = parse_version(noted.read_text(errors="replace")) if noted.is_file() else None
    if found is not None and found[:2] > server[:2]:
        raise RefusedError(
            f"the data are of MariaDB {dotted(found)}, and this image has {dotted(server)}: MariaDB cannot go back to "
            "an older release. Use images that have the newer one again, or restore a dump that was made before"
        )
    return found is None or found[:2] < server[:2]


def make(user: pwd.struct_passwd, server: Version, log: Callable[[str], None]) -> Path:
    """The data directory on the volume; a new one is made beside and renamed when all of it is on the disk.

    What a start left behind that was ended in the middle is thrown away. A new one has the system tables alone: no test
    database, root on the socket only.
    """
    data, half_made = VOLUME / "data", VOLUME / "data.new"
    if data.is_dir():
        return data
    if half_made.exists():
        shutil.rmtree(half_made)
    half_made.mkdir(mode=0o700)
    os.chown(half_made, user.pw_uid, user.pw_gid)
    log("making the data directory")
    argv = [
        "/usr/bin/mariadb-install-db", "--no-defaults", f"--datadir={half_made}", "--skip-test-db",
        "--skip-name-resolve", "--auth-root-authentication-method=socket", "--auth-root-socket-user=mysql",
        "--innodb-use-native-aio=OFF",
    ]  # fmt: skip
    _must(_as_user(user, argv))
    write_version(half_made, server)
    os.sync()
    half_made.rename(data)
    os.sync()
    return data


def _as_user(user: pwd.struct_passwd, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end as the server's user."""
    return subprocess.run(
        list(argv), user=user.pw_uid, group=user.pw_gid, extra_groups=[], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip


def _must(done: subprocess.CompletedProcess[str]) -> None:
    """Its output is shown only when it fails."""
    if done.returncode != 0:
        raise RefusedError(f"{Path(done.args[0]).name} failed ({done.returncode}):\n{done.stdout.strip()}")


def upgrade(user: pwd.struct_passwd, data: Path, server: Version, log: Callable[[str], None]) -> None:
    """Bring the system tables of older data up to date, with a server that nobody else can reach."""
    log(f"the data are of an older MariaDB: upgrading them to {dotted(server)}")
    process = subprocess.Popen(
        [*MARIADBD, "--skip-networking", "--skip-slave-start"], user=user.pw_uid, group=user.pw_gid, extra_groups=[],
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + UPGRADE_START_SECONDS
        while _as_user(user, ["/usr/bin/mariadb-admin", *CLIENT, "ping"]).returncode != 0:
            if process.poll() is not None:
                raise RefusedError(
                    "mariadbd does not start with the older data; it says why above. After a crash, the older image "
                    "has to recover and shut down once before an upgrade"
                )
            if time.monotonic() > deadline:
                raise RefusedError(f"mariadbd is not up after {UPGRADE_START_SECONDS:g} s")
            time.sleep(0.2)
        _must(_as_user(user, ["/usr/bin/mariadb-upgrade", *CLIENT, "--force"]))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    if process.returncode != 0:
        raise RefusedError(f"mariadbd ended with {process.returncode} after the upgrade")
    write_version(data, server)
    log("the data are up to date")


def main() -> None:
    """Entry point."""
    with program("mariadbd") as log:
        memory = int(required_env("MEMORY_LIMIT"))
        expect_volume(VOLUME)
        wait_for(f"the password {PASSWORD}", PASSWORD.is_file, log)
        password = read_password()
        user = pwd.getpwnam("mysql")
        owner = (user.pw_uid, user.pw_gid)
        server = server_version()
        own_directory(RUN, *owner)
        data = make(user, server, log)
        own_tree(data, owner)
        write_atomically(OPTIONS, options(data=data, memory=memory))
        if needs_upgrade(data, server):
            upgrade(user, data, server, log)
        write_version(data, server)
        write_atomically(STATEMENTS, statements(password), mode=0o400, owner=owner)
        write_atomically(PROBE, probe_options(password), mode=0o400)
        become([*MARIADBD, f"--init-file={STATEMENTS}"], log, user=user)
