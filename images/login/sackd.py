"""sackd: fetches Slurm's configuration for the commands of the login pod, and keeps it up to date."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from images.common.log import Log
from images.common.process import become, drop_privileges, end_on_sigterm, required_env
from images.common.readiness import wait_for_controller, wait_for_munge

RUN_SLURM = Path("/run/slurm")


def main() -> None:
    """Entry point."""
    end_on_sigterm()
    log = Log("sackd")
    controller = required_env("CONTROLLER")
    wait_for_munge(log)
    wait_for_controller(controller, log)
    user = pwd.getpwnam("slurm")
    RUN_SLURM.mkdir(parents=True, exist_ok=True)
    os.chown(RUN_SLURM, user.pw_uid, user.pw_gid)
    drop_privileges(user)
    become(["/usr/sbin/sackd", "-D", "--conf-server", controller], log)
