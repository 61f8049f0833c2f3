"""How much memory jobs may lock."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from images.worker import limits

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


def test_machines_without_rdma_keep_their_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "setrlimit", lambda *_: pytest.fail("the limit was changed"))

    limits.raise_locked_memory(print, devices=tmp_path / "infiniband")


def test_machines_with_rdma_may_lock_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: calls.append((which, limit)))

    limits.raise_locked_memory(print, devices=tmp_path)

    assert calls == [(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))]


def test_a_missing_permission_is_told_and_the_node_starts_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    log: list[str] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    monkeypatch.setattr(resource, "setrlimit", refused)

    limits.raise_locked_memory(log.append, devices=tmp_path)

    assert "8192 KiB" in log[0]
    assert "CAP_SYS_RESOURCE" in log[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to lose")
@pytest.mark.parametrize(("user", "locked"), [(False, True), (True, False)])
def test_a_capability_would_serve_root_but_no_users_job(user: bool, locked: bool) -> None:
    """Why the limit is raised: CAP_IPC_LOCK, which root has here, is lost on the way to a job's user."""
    done = subprocess.run(
        [sys.executable, "-c", LOCK.format(user=user)], capture_output=True, text=True, check=True, timeout=60
    )

    assert (done.stdout.strip() == "0") == locked
