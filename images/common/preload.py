"""Libraries of ours that Slurm's daemons are started with. The C files in images/common/native tell why."""

from __future__ import annotations

import os
from typing import Final

LOST_PEERS: Final = "/usr/lib/slurmstack/lost_peers.so"
"""Connections end in seconds when the machine at the other end is gone."""

NO_TRIGGERS: Final = "/usr/lib/slurmstack/no_triggers.so"
"""slurmctld starts no program of a trigger."""

GUARDED: Final = "/usr/lib/slurmstack/guarded.so"
"""What users ask of slurmd and slurmstepd does no harm to others."""


def environment(*libraries: str) -> dict[str, str]:
    """This process's environment, with the libraries for the daemon that it turns into."""
    return {**os.environ, "LD_PRELOAD": ":".join(libraries)}
