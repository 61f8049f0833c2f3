"""Limits of slurmd, which jobs inherit: Slurm passes no limits on from where a job was submitted."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

RDMA_DEVICES: Final = Path("/dev/infiniband")

_UNLIMITED: Final = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def raise_locked_memory(log: Callable[[str], None], devices: Path = RDMA_DEVICES) -> None:
    """Let jobs lock as much memory as they want, on machines with RDMA devices: registering memory locks it.

    The limit and not CAP_IPC_LOCK: a job's processes belong to a user and have no capabilities.
    """
    if not devices.is_dir() or resource.getrlimit(resource.RLIMIT_MEMLOCK) == _UNLIMITED:
        return
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, _UNLIMITED)
    except (ValueError, OSError) as error:
        soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        log(
            f"jobs may lock only {soft // 1024} KiB of memory, too little for RDMA: the limit cannot be raised "
            f"({error}; the container needs CAP_SYS_RESOURCE)"
        )
