"""sackd: fetches Slurm's configuration for the commands of the login pod, and keeps it up to date."""

from __future__ import annotations

from pathlib import Path

from images.common.log import Log
from images.common.process import become, end_on_sigterm, required_env
from images.common.readiness import wait_for_controller, wait_for_munge

RUN_SLURM = Path("/run/slurm")


def main() -> None:
    """Entry point."""
    end_on_sigterm()
    log = Log("sackd")
    controller = required_env("CONTROLLER")
    RUN_SLURM.mkdir(parents=True, exist_ok=True)
    wait_for_munge(log)
    wait_for_controller(controller, log)
    become(["/usr/sbin/sackd", "-D", "--conf-server", controller], log)
