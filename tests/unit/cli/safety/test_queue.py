"""What squeue prints of the queue, read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.errors import Failure
from cli.safety import queue as queues
from cli.safety.queue import SEPARATOR, Job, Queue, await_queue, parse_jobs, read_queue, task_ids
from tests.fakes.queue_cluster import FakeKubectl, job

RECORDED = """\
5_[1,5,9]|alice|main|PENDING||1-00:00:00|1-00:00:00|1|1|256M|(null)|
8|alice|main|PENDING||1-00:00:00|1-00:00:00|1|2|300M|(null)|default-0
7|alice|main|PENDING||1-00:00:00|1-00:00:00|1|1|700M|default|
3|alice|main|RUNNING|default-0|1:59:57|2:00:00|1|1|256M|(null)|
6|alice|main,old|PENDING||UNLIMITED|UNLIMITED|1|1|256M|(null)|
4_[1-100:3%8]|alice|old|PENDING||1:00:00|1:00:00|1|2|256M|(null)|
10|alice|old|PENDING||UNLIMITED|UNLIMITED|1|1|0|(null)|
1|alice|old|RUNNING|gone-0|29:57|30:00|1|1|256M|(null)|
""".replace("|", SEPARATOR)
"""What a real squeue printed, 24.11.5. 26.05.5 prints the same."""


def the_job(line: str) -> Job:
    (found,) = parse_jobs(line.replace("|", SEPARATOR) + "\n")
    return found


def test_what_squeue_prints_is_understood() -> None:
    jobs = {item.id: item for item in parse_jobs(RECORDED)}
    assert len(jobs) == 8
    assert {id_ for id_, item in jobs.items() if item.waits} == {"5_[1,5,9]", "8", "7", "6", "4_[1-100:3%8]", "10"}
    assert (jobs["1"].nodes, jobs["1"].left, jobs["1"].limit) == (("gone-0",), 1797, 1800)
    assert (jobs["6"].partitions, jobs["6"].limit) == (("main", "old"), None)
    assert (jobs["8"].wanted_nodes, jobs["8"].min_cpus, jobs["8"].min_memory) == (("default-0",), 2, 300)
    assert (jobs["7"].constraint, jobs["10"].constraint, jobs["10"].min_memory) == ("default", "", 0)


def test_jobs_that_only_clean_up_are_none() -> None:
    line = "7|alice|main|COMPLETING|cpu-3|1:00|2:00|1|1|500M|(null)|\n"
    assert parse_jobs(line.replace("|", SEPARATOR)) == ()


def test_the_year_that_backfill_gives_to_a_job_without_a_limit_is_none() -> None:
    started = the_job("7|alice|main|RUNNING|cpu-3|364-23:59:44|365-00:00:00|1|1|500M|(null)|")
    assert (started.left, started.limit) == (None, None)


def test_what_a_user_writes_into_the_last_field_makes_no_job_and_hides_none() -> None:
    mine = "7|mallory|main|PENDING||1:00|1:00|1|1|500M|(null)|"
    forged = "|".join(["main-0", "alice", "old", "RUNNING", "x-1", *["1:00"] * 7])
    jobs = parse_jobs(f"{mine}main-0|main-1\r\n{forged}\n".replace("|", SEPARATOR))
    assert [(item.id, item.user) for item in jobs] == [("7", "mallory")]


def test_tasks_that_wait_together_are_cancelled_one_by_one() -> None:
    assert list(task_ids("12_[4-10:3,107%8]")) == ["12_4", "12_7", "12_10", "12_107"]
    assert [list(task_ids(id_)) for id_ in ("12", "12_3", "12+1")] == [["12"], ["12_3"], ["12+1"]]


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
