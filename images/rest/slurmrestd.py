"""slurmrestd: Slurm's REST API on a socket of the pod; images/rest/proxy.py brings TLS and the network to it.

It has no key of any kind. What a request may do is decided by slurmctld and slurmdbd, by the token that the request
brings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from images.common.process import become, program, required_env
from images.common.slurm_conf import uses_database
from images.common.wait import wait_for

SLURM_CONF: Final = Path("/config/slurm/slurm.conf")
SOCKET: Final = Path("/run/slurmstack/slurmrestd.sock")
"""On an emptyDir that only the containers of the pod share."""


def command(slurm_conf: str, *, threads: str, max_connections: str) -> list[str]:
    """The daemon's command line. Without slurmdbd its part of the API is left out: slurmrestd would not start."""
    parts = ["slurmctld", *(["slurmdbd"] if uses_database({"slurm.conf": slurm_conf}) else [])]
    return [
        "/usr/sbin/slurmrestd",
        *("-f", str(SLURM_CONF)),
        *("-a", "rest_auth/jwt"),
        *("-s", ",".join(parts)),
        *("-t", threads),
        *("--max-connections", max_connections),
        f"unix:{SOCKET}",
    ]


def environment(present: Mapping[str, str]) -> dict[str, str]:
    """The daemon's environment.

    `SLURM_JWT=daemon`: it never signs anything itself, so it wants no munge. To leave shared System V semaphores and
    file tables needs `unshare`, which the container's seccomp profile forbids; in a container nobody shares them.
    """
    return {**present, "SLURM_JWT": "daemon", "SLURMRESTD_SECURITY": "disable_unshare_sysv,disable_unshare_files"}


def main() -> None:
    """Entry point."""
    with program("slurmrestd") as log:
        SOCKET.parent.mkdir(parents=True, exist_ok=True)
        wait_for(f"the configuration {SLURM_CONF}", SLURM_CONF.is_file, log)
        # Left by a container of this pod that ended: slurmrestd would find its address taken.
        SOCKET.unlink(missing_ok=True)
        argv = command(
            SLURM_CONF.read_text(encoding="utf-8"),
            threads=required_env("THREADS"),
            max_connections=required_env("MAX_CONNECTIONS"),
        )
        become(argv, log, env=environment(os.environ))
