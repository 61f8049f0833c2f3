"""How much memory jobs may lock."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from images.worker import slurmd


def test_machines_without_rdma_keep_their_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "setrlimit", lambda *_: pytest.fail("the limit was changed"))

    slurmd.raise_locked_memory(print, devices=tmp_path / "infiniband")


def test_machines_with_rdma_may_lock_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: calls.append((which, limit)))

    slurmd.raise_locked_memory(print, devices=tmp_path)

    assert calls == [(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))]


def test_a_missing_permission_is_told_and_the_node_starts_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    log: list[str] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    monkeypatch.setattr(resource, "setrlimit", refused)

    slurmd.raise_locked_memory(log.append, devices=tmp_path)

    assert "8192 KiB" in log[0]
    assert "CAP_SYS_RESOURCE" in log[0]
