from __future__ import annotations

import json
import time
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from local import cluster, controlplane, hostrecord, lock, nodes, paths, processes, status
from local.errors import LocalError

if TYPE_CHECKING:
    from pathlib import Path

    from local.controlplane import Setup
    from local.report import Report


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path / "slurmstack"))
    return tmp_path


def test_where_nothing_was_started_the_status_says_so() -> None:
    found = cluster.status()
    assert not found.exists
    assert not found.healthy
    assert status.lines(found) == [f"no cluster in {paths.root()}"]


def test_two_commands_at_once_are_refused_by_name_of_the_directory() -> None:
    with lock.exclusive(), pytest.raises(LocalError, match=str(paths.root())), lock.exclusive():
        pytest.fail("the lock was given twice")


def test_the_lock_is_free_again_after_a_failure() -> None:
    with pytest.raises(ValueError, match="broken"), lock.exclusive():
        raise ValueError("broken")
    with lock.exclusive():
        pass


@pytest.fixture
def ended_kubelet(monkeypatch: pytest.MonkeyPatch) -> tuple[Setup, list[str]]:
    """Two nodes, the kubelet of the second of which ends each time, and the list of those started again."""
    running = {*controlplane.COMPONENTS, *nodes.components("node-0"), *nodes.components("node-1")} - {"kubelet-node-1"}
    started: list[str] = []
    monkeypatch.setattr(processes, "is_running", running.__contains__)
    monkeypatch.setattr(nodes, "ensure_kubelet", lambda _, name: started.append(name))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    processes.log_path("kubelet-node-1").parent.mkdir(parents=True)
    return cast("Setup", SimpleNamespace(nodes=("node-0", "node-1"), restarts=Counter())), started


def test_a_kubelet_that_came_too_early_is_started_again_for_as_long_as_it_takes(
    ended_kubelet: tuple[Setup, list[str]],
) -> None:
    """However late it ends: that it ran a moment ago says nothing."""
    setup, started = ended_kubelet
    processes.log_path("kubelet-node-1").write_text("run.go:74] failed: the CRI v1 server is not initialized yet\n")
    for _ in range(20):
        cluster._require_daemons(setup)
    assert started == ["node-1"] * 20


def test_a_kubelet_that_ends_for_another_reason_is_started_again_three_times(
    ended_kubelet: tuple[Setup, list[str]],
) -> None:
    setup, started = ended_kubelet
    processes.log_path("kubelet-node-1").write_text("run.go:74] command failed: no such file\n")
    for _ in range(3):
        cluster._require_daemons(setup)
    with pytest.raises(LocalError, match=r"kubelet-node-1 ended just after its start:\n.*no such file"):
        cluster._require_daemons(setup)
    assert started == ["node-1"] * 3


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_reset_that_fails_is_tried_once_more(failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def reset(_: Setup, name: str, __: Report) -> None:
        tried.append(name)
        if len(tried) <= failures:
            raise LocalError("containerd of node-1 does not serve", "look at its log")

    said: list[str] = []
    setup = cast("Setup", SimpleNamespace(restarts=Counter()))
    monkeypatch.setattr(cluster, "_existing", lambda _: setup)
    monkeypatch.setattr(cluster, "_require_root", lambda: None)
    monkeypatch.setattr(cluster, "_reset", reset)
    report = cast("Report", SimpleNamespace(info=said.append))
    if failures == 2:
        with pytest.raises(LocalError, match="containerd of node-1"):
            cluster.restart_node("node-1", report)
    else:
        cluster.restart_node("node-1", report)
    assert tried == ["node-1"] * min(2, failures + 1)
    assert said == ["warning: containerd of node-1 does not serve; node-1 is reset once more"] * min(1, failures)


def test_a_directory_made_on_the_host_is_removed_again_with_its_parents(directory: Path) -> None:
    made = directory / "host" / "var" / "kubelet"
    hostrecord.make_directory(made)
    assert made.is_dir()
    hostrecord.remove_directories()
    assert not (directory / "host").exists()


def test_a_directory_that_somebody_uses_meanwhile_stays(directory: Path) -> None:
    made = directory / "kubelet"
    hostrecord.make_directory(made)
    (made / "theirs").touch()
    hostrecord.remove_directories()
    assert (made / "theirs").exists()


def test_the_first_value_of_forwarding_is_the_one_that_is_put_back() -> None:
    hostrecord.remember_forwarding("eth0", "0")
    hostrecord.remember_forwarding("eth0", "1")
    assert json.loads((paths.cluster() / "host.json").read_text())["forwarding"] == {"eth0": "0"}
