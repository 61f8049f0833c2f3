from __future__ import annotations

import datetime as dt
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from local import cluster, controlplane, lock, nodes, paths, processes
from local.addresses import from_environment
from local.api import Api
from local.controlplane import Setup
from local.errors import LocalError


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path / "slurmstack"))
    return tmp_path


def test_two_commands_at_once_are_refused_by_name_of_the_directory() -> None:
    with lock.exclusive(), pytest.raises(LocalError, match=str(paths.root())), lock.exclusive():
        pytest.fail("the lock was given twice")


SETUP = cast("Setup", SimpleNamespace(nodes=("node-0", "node-1")))


def test_a_kubelet_that_has_ended_is_started_again_and_a_containerd_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet ends where it asks containerd too early; without containerd nothing of its node goes on."""
    running = {*controlplane.COMPONENTS, "containerd-node-0", "containerd-node-1"}
    started: list[str] = []
    monkeypatch.setattr(processes, "is_running", running.__contains__)
    monkeypatch.setattr(nodes, "ensure_kubelet", lambda _, name: started.append(name))
    cluster._require_daemons(SETUP)
    assert started == ["node-0", "node-1"]
    running.remove("containerd-node-1")
    with pytest.raises(LocalError, match="containerd-node-1 ended"):
        cluster._require_daemons(SETUP)


def _pod(name: str, node: str, *began: str, ended: bool = False) -> dict[str, Any]:
    statuses = [{"state": {"terminated" if ended else "running": {"startedAt": each}}} for each in began]
    return {
        "metadata": {"namespace": "slurm", "name": name},
        "spec": {"nodeName": node},
        "status": {"initContainerStatuses": statuses[:1], "containerStatuses": statuses[1:]},
    }


def test_pods_of_which_a_container_of_before_the_crash_is_said_to_run_are_untrue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, since, after = (
        "2026-01-01T10:00:00Z",
        dt.datetime(2026, 1, 1, 11, 0, 0, 900, dt.UTC),
        "2026-01-01T11:00:00Z",
    )
    record = SimpleNamespace(started_at=since.timestamp())
    monkeypatch.setattr(processes, "record_of", lambda _: record)
    pods = [
        _pod("true", "node-0", after, after), _pod("one", "node-1", after, before),
        _pod("init", "node-0", before, after),
        _pod("ended", "node-0", before, ended=True), _pod("of another", "node-7", before), _pod("waits", "node-0"),
    ]  # fmt: skip
    api = Api(from_environment({}))
    monkeypatch.setattr(api, "get", lambda _: {"items": pods})
    assert cluster._untrue_pods(SETUP, api) == ["slurm/init", "slurm/one"]
