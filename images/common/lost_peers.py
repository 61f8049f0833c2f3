"""Connections of slurmctld and slurmdbd end in seconds when the machine at the other end is gone."""

from __future__ import annotations

import os
from typing import Final

LIBRARY: Final = "/usr/lib/slurmstack/lost_peers.so"
"""images/common/native/lost_peers.c, which tells why."""


def environment() -> dict[str, str]:
    """This process's environment, with the library for the daemon that it turns into."""
    return {**os.environ, "LD_PRELOAD": LIBRARY}
