from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from local import cluster, controlplane, nodes, paths, processes
from local.controlplane import Setup
from local.errors import LocalError


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path / "slurmstack"))
    return tmp_path


def test_two_commands_at_once_are_refused_by_name_of_the_directory() -> None:
    with cluster.exclusive(), pytest.raises(LocalError, match=str(paths.root())), cluster.exclusive():
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
