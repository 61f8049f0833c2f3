"""mariadbd: makes its data at the first start, brings older data up to date, and serves slurmdbd."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from images.common.files import write_atomically
from images.common.log import Log
from images.common.mountinfo import WrongFilesystemError, expect_filesystem
from images.common.process import become, drop_privileges, end_on_sigterm, required_env
from images.common.room import Volume, watch
from images.common.wait import wait_for
from images.database.datadir import (
    DataDirectoryError,
    Version,
    dotted,
    make,
    needs_upgrade,
    own,
    server_version,
    write_version,
)
from images.database.settings import OPTIONS, PROBE, RUN, SOCKET, STATEMENTS, options, probe_options, statements

PASSWORD: Final = Path("/secrets/database/password")
VOLUME: Final = Path("/var/lib/mysql")
MARIADBD: Final = ("/usr/sbin/mariadbd", f"--defaults-file={OPTIONS}")
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

REFUSED: Final = 2


def install_with(user: pwd.struct_passwd, log: Callable[[str], None]) -> Callable[[Path], None]:
    """Fills an empty data directory with the system tables: no test database, root on the socket only."""

    def install(directory: Path) -> None:
        log("making the data directory")
        _as_user(
            user,
            [
                "/usr/bin/mariadb-install-db", "--no-defaults", f"--datadir={directory}", "--skip-test-db",
                "--skip-name-resolve", "--auth-root-authentication-method=socket", "--auth-root-socket-user=mysql",
                "--innodb-use-native-aio=OFF",
            ],
        )  # fmt: skip

    return install


def _as_user(user: pwd.struct_passwd, argv: Sequence[str]) -> None:
    """Run a program to its end as the server's user; its output is shown only when it fails."""
    done = subprocess.run(
        list(argv), user=user.pw_uid, group=user.pw_gid, extra_groups=[], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise DataDirectoryError(f"{Path(argv[0]).name} failed ({done.returncode}):\n{done.stdout.strip()}")


def upgrade(user: pwd.struct_passwd, data: Path, server: Version, log: Callable[[str], None]) -> None:
    """Bring the system tables of older data up to date, with a server that nobody else can reach."""
    log(f"the data are of an older MariaDB: upgrading them to {dotted(server)}")
    process = subprocess.Popen(
        [*MARIADBD, "--skip-networking", "--skip-slave-start"], user=user.pw_uid, group=user.pw_gid, extra_groups=[],
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + UPGRADE_START_SECONDS
        while not _answers(user):
            if process.poll() is not None:
                raise DataDirectoryError(
                    "mariadbd does not start with the older data; it says why above. After a crash, the older image "
                    "has to recover and shut down once before an upgrade"
                )
            if time.monotonic() > deadline:
                raise DataDirectoryError(f"mariadbd is not up after {UPGRADE_START_SECONDS:g} s")
            time.sleep(0.2)
        _as_user(user, ["/usr/bin/mariadb-upgrade", "--no-defaults", f"--socket={SOCKET}", "--user=mysql", "--force"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    if process.returncode != 0:
        raise DataDirectoryError(f"mariadbd ended with {process.returncode} after the upgrade")
    write_version(data, server)
    log("the data are up to date")


def _answers(user: pwd.struct_passwd) -> bool:
    argv = ["/usr/bin/mariadb-admin", "--no-defaults", f"--socket={SOCKET}", "--user=mysql", "ping"]
    done = subprocess.run(
        argv, user=user.pw_uid, group=user.pw_gid, extra_groups=[], capture_output=True, check=False
    )  # fmt: skip
    return done.returncode == 0


def main() -> None:
    """Entry point."""
    end_on_sigterm()
    log = Log("mariadbd")
    memory = int(required_env("MEMORY_LIMIT"))
    try:
        expect_filesystem(VOLUME, os.environ.get("EXPECT_FILESYSTEM", ""))
    except WrongFilesystemError as error:
        log(str(error))
        sys.exit(1)
    wait_for(f"the password {PASSWORD}", PASSWORD.is_file, log)
    password = PASSWORD.read_text(encoding="utf-8").rstrip("\n")
    user = pwd.getpwnam("mysql")
    owner = (user.pw_uid, user.pw_gid)
    server = server_version()
    RUN.mkdir(parents=True, exist_ok=True)
    os.chown(RUN, *owner)
    RUN.chmod(0o755)
    try:
        data = make(VOLUME, owner, install_with(user, log), server)
        own(data, owner)
        write_atomically(OPTIONS, options(data=data, memory=memory))
        if needs_upgrade(data, server):
            upgrade(user, data, server, log)
    except DataDirectoryError as error:
        log(str(error))
        sys.exit(REFUSED)
    write_version(data, server)
    write_atomically(STATEMENTS, statements(password), mode=0o400, owner=owner)
    write_atomically(PROBE, probe_options(password), mode=0o400)
    watch(ROOM, user, log)
    drop_privileges(user)
    become([*MARIADBD, f"--init-file={STATEMENTS}"], log)
