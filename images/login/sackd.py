"""sackd: fetches Slurm's configuration for the commands of the login pod, and keeps it up to date."""

from __future__ import annotations

import pwd

from images.common.boundary import RUN_SLURM, own_directory
from images.common.process import become, program, required_env
from images.common.readiness import wait_for_controller, wait_for_munge


def main() -> None:
    """Entry point."""
    with program("sackd") as log:
        user = pwd.getpwnam("slurm")
        own_directory(RUN_SLURM, user.pw_uid, user.pw_gid)
        controller = required_env("CONTROLLER")
        wait_for_munge(log)
        wait_for_controller(controller, log)
        become(["/usr/sbin/sackd", "-D", "--conf-server", controller], log, user=user)
