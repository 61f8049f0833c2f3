"""slurmdbd: starts when munge answers and the database can be used, with the password added to its configuration."""

from __future__ import annotations

import pwd
import sys
from pathlib import Path
from typing import Final

from images.accounting.check_database import REFUSED, DatabaseCheck, RefusedError, await_database, slurm_release
from images.accounting.conf import (
    PASSWORD,
    RENDERED,
    UnusablePasswordError,
    install_certificates,
    read_password,
    storage_of,
    with_password,
)
from images.common import preload
from images.common.boundary import own_directory
from images.common.files import write_atomically
from images.common.jwt_key import install_jwt_key
from images.common.log import Log
from images.common.process import become, drop_privileges, end_on_sigterm
from images.common.readiness import wait_for_munge
from images.common.wait import wait_for

RUN: Final = Path("/run/slurmdbd")
"""For slurmdbd alone, which is not root: its pid file, and its configuration with the password."""
CONF: Final = RUN / "slurmdbd.conf"


def main() -> None:
    """Entry point."""
    end_on_sigterm()
    log = Log("slurmdbd")
    for path in (RENDERED, PASSWORD):
        wait_for(f"the file {path}", path.is_file, log)
    wait_for_munge(log)
    user = pwd.getpwnam("slurm")
    owner = (user.pw_uid, user.pw_gid)
    install_certificates(owner)
    install_jwt_key(user.pw_uid, user.pw_gid, log)
    text, password = RENDERED.read_text(encoding="utf-8"), read_password()
    storage = storage_of(text, password)
    check = DatabaseCheck(storage, release=slurm_release())
    try:
        whole = with_password(text, password)
        answer = await_database(check, storage.where, log, seconds=None)
    except (RefusedError, UnusablePasswordError) as error:
        log(str(error))
        sys.exit(REFUSED)
    log(f"the database at {storage.where} is {answer.server}")
    own_directory(RUN, *owner)
    write_atomically(CONF, whole, mode=0o600, owner=owner)
    drop_privileges(user)
    # slurmdbd looks for its own file beside slurm.conf, which it does not read itself.
    environment = {**preload.environment(preload.LOST_PEERS), "SLURM_CONF": str(RUN / "slurm.conf")}
    become(["/usr/sbin/slurmdbd", "-D"], log, env=environment)
