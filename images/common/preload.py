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

SAVED_FIRST: Final = "/usr/lib/slurmstack/saved_first.so"
"""What slurmctld has answered is on the disk; for one that another one may take over from."""

ACTIVE_HOST: Final = "/usr/lib/slurmstack/active_host.so"
"""The host has the name that slurm.conf knows the active controller by."""

HOST: Final = "SLURMSTACK_HOST"
"""Variable with that name, in the pods of two controllers."""

STATE: Final = "SLURMSTACK_STATE"
"""Variable with slurmctld's state directory, for SAVED_FIRST."""


def as_active_host() -> dict[str, str]:
    """For the environment of a slurmctld that only tries a configuration; nothing where there is one controller."""
    return {HOST: os.environ[HOST], "LD_PRELOAD": ACTIVE_HOST} if HOST in os.environ else {}


def environment(*libraries: str) -> dict[str, str]:
    """This process's environment, with the libraries for the daemon that it turns into."""
    return {**os.environ, "LD_PRELOAD": ":".join(libraries)}
