"""How much memory jobs may lock, as the kernel sees it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LOCK = """
import ctypes, os, resource
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
libc = ctypes.CDLL(None)
size = 1 << 20
buffer = ctypes.create_string_buffer(size)
if {user}:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
print(libc.mlock(buffer, size))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to lose")
@pytest.mark.parametrize(("user", "locked"), [(False, True), (True, False)])
def test_a_capability_would_serve_root_but_no_users_job(user: bool, locked: bool) -> None:
    """Why the limit is raised: CAP_IPC_LOCK, which root has here, is lost on the way to a job's user."""
    done = subprocess.run(
        [sys.executable, "-c", LOCK.format(user=user)], capture_output=True, text=True, check=True, timeout=60
    )

    assert (done.stdout.strip() == "0") == locked
