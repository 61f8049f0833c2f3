"""slurmrestd: Slurm's REST API on a socket of the pod; images/rest/proxy.py brings TLS and the network to it.

It has no key of any kind. What a request may do is decided by slurmctld and slurmdbd, by the token that the request
brings.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from images.common.process import become, program, required_env
from images.common.wait import wait_for

SLURM_CONF: Final = Path("/config/slurm/slurm.conf")
SOCKET: Final = Path("/run/slurmstack/slurmrestd.sock")
"""On an emptyDir that only the containers of the pod share."""


def main() -> None:
    """Entry point."""
    with program("slurmrestd") as log:
        SOCKET.parent.mkdir(parents=True, exist_ok=True)
        wait_for(f"the configuration {SLURM_CONF}", SLURM_CONF.is_file, log)
        # Left by a container of this pod that ended: slurmrestd would find its address taken.
        SOCKET.unlink(missing_ok=True)
        command = [
            "/usr/sbin/slurmrestd", "-f", str(SLURM_CONF), "-a", "rest_auth/jwt",
            "-s", "slurmctld,slurmdbd", "-t", required_env("THREADS"),
            "--max-connections", required_env("MAX_CONNECTIONS"), f"unix:{SOCKET}",
        ]  # fmt: skip
        # It never signs anything itself, so it wants no munge. To leave shared System V semaphores and file tables
        # needs `unshare`, which the container's seccomp profile forbids; in a container nobody shares them.
        own = {"SLURM_JWT": "daemon", "SLURMRESTD_SECURITY": "disable_unshare_sysv,disable_unshare_files"}
        become(command, log, env={**os.environ, **own})
