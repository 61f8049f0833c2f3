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


def test_pods_of_which_a_container_of_before_the_crash_is_said_to_run_are_untrue() -> None:
    sidecar, pending = _pod("init", "node-0", "a"), _pod("pending", "node-0", "gone")
    sidecar["status"]["initContainerStatuses"] = [{"containerID": "containerd://gone", "state": {"running": {}}}]
    del pending["spec"]["nodeName"]
    untrue = [_pod("one", "node-0", "a", "gone"), _pod("elsewhere", "node-1", "a"), sidecar]
    true = [_pod("x", "node-0", "a", "b"), _pod("y", "node-1", "c")]
    claims_nothing = [
        _pod("ended", "node-0", "gone", state="terminated"), _pod("waits", "node-0", "", state="waiting"),
        _pod("of another", "node-7", "gone"), pending,
    ]  # fmt: skip
    assert untrue_pods([*true, *untrue, *claims_nothing], RUNNING) == ["slurm/elsewhere", "slurm/init", "slurm/one"]


def test_only_running_tasks_of_containerd_count() -> None:
    printed = "TASK    PID     STATUS\naa      10      RUNNING\nbb      11      STOPPED\ncc      12      UNKNOWN\n"
    assert parse_tasks(printed) == {"aa"}
    assert parse_tasks("") == frozenset(), "a containerd that does not answer runs nothing"


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
