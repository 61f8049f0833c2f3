"""The queue, asked for in a controller that may be on its way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.change import jobs as queues
from cli.change.job_effects import Queue
from cli.change.jobs import await_queue, read_queue
from cli.errors import Failure
from tests.fakes.queue_cluster import FakeKubectl, job

# A controller that is on its way

CONTROLLER = {"kind": "StatefulSet", "metadata": {"name": "controller"}}
LEAVING = {"deletionTimestamp": "2026-11-23T01:00:00Z"}


def controller_pod(started: timedelta | None, **metadata: str) -> dict[str, Any]:
    """With a container that started so long ago, or does not run. To be made when it is looked at."""
    running = {"running": {"startedAt": f"{datetime.now(UTC) - started:%Y-%m-%dT%H:%M:%SZ}"}} if started else {}
    containers = [{"state": running or {"waiting": {"reason": "PodInitializing"}}}]
    metadata = {"name": "controller-0", **metadata}
    return {"kind": "Pod", "metadata": metadata, "status": {"containerStatuses": containers}}


@dataclass(frozen=True, kw_only=True)
class Slow(FakeKubectl):
    """A slurmctld that answers from the third question on."""

    asked: list[int] = field(default_factory=list)

    def run(self, *arguments: str, **more: Any) -> Any:
        self.asked.extend([1] * (arguments[0] == "exec"))
        silent = arguments[0] == "exec" and len(self.asked) < 3
        return FakeKubectl.run(FakeKubectl(queue=None) if silent else self, *arguments, **more)


def after_a_failure(kubectl: FakeKubectl) -> Queue:
    with pytest.raises(Failure) as failed:
        read_queue(FakeKubectl(queue=None), "slurm")
    return await_queue(kubectl, "slurm", failed.value)


@pytest.mark.parametrize(
    "there",
    [
        lambda: [CONTROLLER],
        lambda: [CONTROLLER, controller_pod(timedelta(hours=1), **LEAVING)],
        lambda: [CONTROLLER, controller_pod(None)],
        lambda: [CONTROLLER, controller_pod(timedelta(seconds=3))],
    ],
    ids=["away", "leaves", "no container", "has just begun"],
)
def test_a_controller_that_is_starting_is_waited_for_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], there: Callable[[], list[dict[str, Any]]]
) -> None:
    monkeypatch.setattr(queues, "_PAUSE", 0)
    assert [item.id for item in after_a_failure(Slow(there=there(), queue=job("7") + "\n")).jobs] == ["7"]
    assert "controller-0 is starting: waiting" in capsys.readouterr().err


def test_a_controller_that_starts_for_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_PAUSE", 0)
    monkeypatch.setattr(queues, "STARTING", 0.01)
    with pytest.raises(Failure, match="does not answer after"):
        after_a_failure(FakeKubectl(queue=None, there=[CONTROLLER]))


@pytest.mark.parametrize(
    "there",
    [
        list,
        lambda: [controller_pod(None)],
        lambda: [{**CONTROLLER, "metadata": {"name": "controller", **LEAVING}}, controller_pod(None)],
        lambda: [CONTROLLER, controller_pod(timedelta(hours=1))],
    ],
    ids=["none", "no set", "destroyed", "runs for long"],
)
def test_one_that_is_not_starting_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, there: Callable[[], list[dict[str, Any]]]
) -> None:
    monkeypatch.setattr(queues, "_PAUSE", 3600)
    with pytest.raises(Failure, match="Unable to contact slurm controller"):
        after_a_failure(FakeKubectl(there=there()))
