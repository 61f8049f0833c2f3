from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from local import cluster, controlplane, hostrecord, lock, nodes, paths, processes, status
from local.errors import LocalError

if TYPE_CHECKING:
    from pathlib import Path

    from local.controlplane import Setup


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path / "slurmstack"))
    return tmp_path


def test_where_nothing_was_started_the_status_says_so() -> None:
    found = cluster.status()
    assert not found.exists
    assert not found.healthy
    assert status.lines(found) == [f"no cluster in {paths.root()}"]


def test_images_cannot_be_loaded_where_there_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="there is no cluster"):
        cluster.load_archive(tmp_path / "image.tar")


def test_two_commands_at_once_are_refused_by_name_of_the_directory() -> None:
    with lock.exclusive(), pytest.raises(LocalError, match=str(paths.root())), lock.exclusive():
        pytest.fail("the lock was given twice")


def test_the_lock_is_free_again_after_a_failure() -> None:
    with pytest.raises(ValueError, match="broken"), lock.exclusive():
        raise ValueError("broken")
    with lock.exclusive():
        pass


@pytest.mark.parametrize("said", ["the CRI v1 server is not initialized yet", "no such file"])
def test_a_kubelet_that_ended_as_it_came_too_early_is_started_again(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However late it ends: that it ran a moment ago says nothing."""
    running = {*controlplane.COMPONENTS, *nodes.components("node-0"), *nodes.components("node-1")} - {"kubelet-node-1"}
    started: list[str] = []
    monkeypatch.setattr(processes, "is_running", running.__contains__)
    monkeypatch.setattr(nodes, "ensure_kubelet", lambda _, name: started.append(name))
    log = processes.log_path("kubelet-node-1")
    log.parent.mkdir(parents=True)
    log.write_text(f"E1124 run.go:74] command failed: {said}\n")
    setup = cast("Setup", SimpleNamespace(nodes=("node-0", "node-1")))
    if "initialized" in said:
        cluster._require_daemons(setup)
        assert started == ["node-1"]
    else:
        with pytest.raises(LocalError, match="kubelet-node-1 ended just after its start"):
            cluster._require_daemons(setup)
        assert started == []


def test_a_directory_made_on_the_host_is_removed_again_with_its_parents(directory: Path) -> None:
    made = directory / "host" / "var" / "kubelet"
    hostrecord.make_directory(made)
    assert made.is_dir()
    hostrecord.remove_directories()
    assert not (directory / "host").exists()


def test_a_directory_that_was_there_before_stays(directory: Path) -> None:
    before = directory / "kubelet"
    before.mkdir()
    hostrecord.make_directory(before)
    hostrecord.remove_directories()
    assert before.is_dir()


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
