from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from local import nodes, revival
from local.nodes import parse_tasks
from local.revival import untrue_pods

if TYPE_CHECKING:
    import pytest

    from local.api import Api
    from local.controlplane import Setup
    from local.report import Step


def _pod(name: str, node: str, *containers: str, state: str = "running") -> dict[str, Any]:
    statuses = [{"containerID": f"containerd://{each}", "state": {state: {}}} for each in containers]
    return {
        "metadata": {"namespace": "slurm", "name": name},
        "spec": {"nodeName": node},
        "status": {"containerStatuses": statuses},
    }


RUNNING = {"node-0": frozenset({"a", "b"}), "node-1": frozenset({"c"})}


def test_a_pod_that_runs_as_the_api_says_is_true() -> None:
    assert untrue_pods([_pod("x", "node-0", "a", "b"), _pod("y", "node-1", "c")], RUNNING) == []


def test_one_container_of_before_the_crash_is_enough() -> None:
    assert untrue_pods([_pod("x", "node-0", "a", "gone"), _pod("y", "node-1", "a")], RUNNING) == ["slurm/x", "slurm/y"]


def test_an_init_container_that_runs_on_counts() -> None:
    pod = _pod("x", "node-0", "a")
    pod["status"]["initContainerStatuses"] = [{"containerID": "containerd://gone", "state": {"running": {}}}]
    assert untrue_pods([pod], RUNNING) == ["slurm/x"]


def test_a_pod_that_has_ended_or_waits_claims_nothing() -> None:
    waiting = _pod("y", "node-0", "", state="waiting")
    assert untrue_pods([_pod("x", "node-0", "gone", state="terminated"), waiting], RUNNING) == []


def test_pods_of_other_nodes_and_of_none_are_not_asked_about() -> None:
    pending = _pod("y", "node-0", "gone")
    del pending["spec"]["nodeName"]
    assert untrue_pods([_pod("x", "node-7", "gone"), pending], RUNNING) == []


def test_only_running_tasks_of_containerd_count() -> None:
    printed = "TASK    PID     STATUS\naa      10      RUNNING\nbb      11      STOPPED\ncc      12      UNKNOWN\n"
    assert parse_tasks(printed) == {"aa"}


def test_a_containerd_that_does_not_answer_runs_nothing() -> None:
    assert parse_tasks("") == frozenset()


def test_while_pods_are_waited_for_the_daemons_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that ended was waited for in vain: its node said Ready once more in the second in which it started."""
    running = iter([frozenset[str](), frozenset[str](), frozenset("a")])
    asked: list[Setup] = []
    monkeypatch.setattr(nodes, "running_containers", lambda *_: next(running))
    monkeypatch.setattr(revival, "_POLL_S", 0)
    api = cast("Api", SimpleNamespace(get=lambda _: {"items": [_pod("x", "node-0", "a")]}))
    step = cast("Step", SimpleNamespace(progress=lambda *_: None))
    setup = cast("Setup", object())
    revival.await_true_pods(setup, ["node-0"], api, step, asked.append)
    assert asked == [setup, setup]
