"""slurmdbd: starts when munge answers and the database can be used, with the password added to its configuration."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final

from images.accounting.check_database import await_conf, await_database, with_password
from images.accounting.conversion import SLURMDBD, ask, start_watch
from images.common.boundary import own_directory
from images.common.files import install_jwt_key, write_atomically
from images.common.process import LOST_PEERS, become, program, with_preloaded
from images.common.readiness import wait_for_munge

RUN: Final = Path("/run/slurmdbd")
"""For slurmdbd alone, which is not root: its pid file, and its configuration with the password."""
CONF: Final = RUN / "slurmdbd.conf"


def main() -> None:
    """Entry point."""
    with program("slurmdbd") as log:
        user = pwd.getpwnam("slurm")
        owner = (user.pw_uid, user.pw_gid)
        text, storage = await_conf(owner, log)
        wait_for_munge(log)
        install_jwt_key(owner, log)
        whole = with_password(text, storage.password)
        await_database(storage, log, seconds=None)
        own_directory(RUN, *owner)
        write_atomically(CONF, whole, mode=0o600, owner=owner)
        # slurmdbd looks for its own file beside slurm.conf, which it does not read itself.
        environment = {**with_preloaded(LOST_PEERS), "SLURM_CONF": str(RUN / "slurm.conf")}
        ask(log, {**os.environ, "SLURM_CONF": environment["SLURM_CONF"]})
        start_watch(storage, log, user)
        become([SLURMDBD, "-D"], log, user=user, env=environment)
