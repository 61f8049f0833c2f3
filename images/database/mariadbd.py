"""mariadbd: makes its data at the first start, brings older data up to date, and serves slurmdbd."""

from __future__ import annotations

import pwd
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
from images.common.room import Volume, watch
from images.common.wait import wait_for
from images.database.datadir import Version, dotted, make, needs_upgrade, server_version, write_version

VOLUME: Final = Path("/var/lib/mysql")
MARIADBD: Final = ("/usr/sbin/mariadbd", f"--defaults-file={OPTIONS}")
CLIENT: Final = ("--no-defaults", f"--socket={SOCKET}", "--user=mysql")
"""Options of a program that talks to the server in this container."""
ROOM: Final = Volume(
    name="database-data",
    path=VOLUME,
    remedy=(
        "no job is recorded, slurmctld keeps the records meanwhile. Make it larger: "
        "slurmstack:accounting: {database: {storage: ...}}, then `slurmstack up`; or keep less: accounting.retention"
    ),
)
UPGRADE_START_SECONDS: Final = 600.0
"""For the server that only the upgrade talks to: it may have to recover first."""


def install_with(user: pwd.struct_passwd, log: Callable[[str], None]) -> Callable[[Path], None]:
    """Fills an empty data directory with the system tables: no test database, root on the socket only."""

    def install(directory: Path) -> None:
        log("making the data directory")
        argv = [
            "/usr/bin/mariadb-install-db", "--no-defaults", f"--datadir={directory}", "--skip-test-db",
            "--skip-name-resolve", "--auth-root-authentication-method=socket", "--auth-root-socket-user=mysql",
            "--innodb-use-native-aio=OFF",
        ]  # fmt: skip
        _must(_as_user(user, argv))

    return install


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
        data = make(VOLUME, owner, install_with(user, log), server)
        own_tree(data, owner)
        write_atomically(OPTIONS, options(data=data, memory=memory))
        if needs_upgrade(data, server):
            upgrade(user, data, server, log)
        write_version(data, server)
        write_atomically(STATEMENTS, statements(password), mode=0o400, owner=owner)
        write_atomically(PROBE, probe_options(password), mode=0o400)
        watch(ROOM, user, log)
        become([*MARIADBD, f"--init-file={STATEMENTS}"], log, user=user)
