"""Leaving a cluster: no job is hurt, and an administrator's word stands."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from images.common.command import Result
from images.common.slurm_node import LEAVING_REASON, WANTED_NODES, ControllerUnreachableError, Node
from images.worker.leave import PATIENCE_SECONDS, Ending, Leaving
from tests.fakes.commands import FakeClock, FakeRunner


class FakeSlurm:
    """A node record and its jobs, answered as scontrol and squeue do."""

    def __init__(self, *, states: set[str] | None = None, reason: str = "", jobs: int = 0, refuses: str = "") -> None:
        self.exists = True
        self.states = states or {"IDLE", "DYNAMIC_NORM"}
        self.reason = reason
        self.jobs = jobs
        self.refuses = refuses
        self.wanted = "(null)"
        self.away = False
        self.runner = FakeRunner(
            {
                "scontrol show node": self._show,
                "squeue": self._squeue,
                " ".join(WANTED_NODES): lambda _: self._lost() or Result(code=0, stdout=f"(null)\n{self.wanted}\n"),
                "scontrol update": self._update,
                "scontrol delete": self._delete,
            }
        )

    def _lost(self) -> Result | None:
        return (
            Result(code=1, stderr="slurm_load_node error: Unable to contact slurm controller (connect failure)")
            if self.away
            else None
        )

    def _show(self, _argv: object) -> Result:
        record = {"name": "w-0", "state": sorted(self.states), "reason": self.reason}
        found = [record] if self.exists else []
        return self._lost() or Result(
            code=0 if found else 1, stdout=json.dumps({"nodes": found}), stderr="" if found else "Node w-0 not found"
        )

    def _squeue(self, _argv: object) -> Result:
        return self._lost() or Result(code=0, stdout="17\n" * self.jobs)

    def _update(self, argv: object) -> Result:
        lost = self._lost()
        if lost:
            return lost
        fields = dict(part.split("=", 1) for part in argv if "=" in part)  # type: ignore[attr-defined]
        self.states = {*self.states, fields["state"].upper()}
        self.reason = fields.get("reason", self.reason)
        return Result(code=0)

    def _delete(self, _argv: object) -> Result:
        if self.refuses:
            return Result(code=1, stderr=self.refuses)
        self.exists = False
        return Result(code=0)


def leave(
    slurm: FakeSlurm, *, steps: Callable[[], int] = lambda: 0, clock: FakeClock | None = None
) -> tuple[Ending, list[str]]:
    log: list[str] = []
    ending = Leaving(Node(name="w-0", runner=slurm.runner), log.append, steps=steps, clock=clock or FakeClock()).run()
    return ending, log


def test_an_idle_node_is_drained_and_its_record_deleted() -> None:
    slurm = FakeSlurm()

    ending, _ = leave(slurm)

    assert ending is Ending.DELETED
    assert not slurm.exists
    order = [
        command.split(" reason")[0] for command in slurm.runner.commands if "update" in command or "delete" in command
    ]
    assert order == [
        "scontrol update nodename=w-0 state=drain",
        "scontrol update nodename=w-0 state=down",
        "scontrol delete nodename=w-0",
    ]


def test_a_node_that_a_pending_job_asks_for_leaves_and_stays_on_record() -> None:
    slurm = FakeSlurm()
    slurm.wanted = "w-[0-1]"

    ending, _ = leave(slurm)

    assert ending is Ending.WANTED
    assert slurm.exists
    assert "DOWN" in slurm.states
    assert slurm.reason == LEAVING_REASON, "the next pod of this name lifts it"


def test_a_running_job_is_waited_for_and_never_killed() -> None:
    slurm, clock = FakeSlurm(jobs=1), FakeClock()

    def after_an_hour() -> None:
        assert not slurm.runner.ran("scontrol update nodename=w-0 state=down")
        assert not slurm.runner.ran("scancel")
        if clock.time > 3600:
            slurm.jobs = 0

    clock.on_sleep = after_an_hour
    ending, log = leave(slurm, clock=clock)

    assert ending is Ending.DELETED
    assert clock.time > 3600
    assert any("waiting for the jobs" in line for line in log)


def test_a_long_wait_is_told_at_most_every_ten_seconds_and_polled_gently() -> None:
    slurm, clock = FakeSlurm(jobs=1), FakeClock()
    clock.on_sleep = lambda: setattr(slurm, "jobs", 0) if clock.time > 600 else None

    _, log = leave(slurm, clock=clock)

    assert 30 < sum("waiting" in line for line in log) <= 61
    assert len(slurm.runner.commands) < 700


def test_an_administrators_drain_stays_on_record() -> None:
    slurm = FakeSlurm(states={"IDLE", "DRAIN"}, reason="bad memory")

    ending, log = leave(slurm)

    assert ending is Ending.KEPT
    assert slurm.exists
    assert slurm.reason == "bad memory"
    assert any("bad memory" in line for line in log)


def test_an_administrator_who_drains_while_the_jobs_end_is_heard() -> None:
    slurm, clock = FakeSlurm(jobs=1), FakeClock()

    def administrator() -> None:
        if clock.time > 5:
            slurm.reason, slurm.jobs = "keep for inspection", 0

    clock.on_sleep = administrator
    ending, _ = leave(slurm, clock=clock)

    assert ending is Ending.KEPT
    assert slurm.exists


def test_a_node_that_is_resumed_meanwhile_is_drained_again() -> None:
    slurm, clock = FakeSlurm(jobs=1), FakeClock()

    def resume() -> None:
        if 5 < clock.time < 6:
            slurm.states, slurm.reason = {"IDLE"}, ""
        if clock.time > 20:
            slurm.jobs = 0

    clock.on_sleep = resume
    ending, _ = leave(slurm, clock=clock)

    assert ending is Ending.DELETED
    assert sum("state=drain" in command for command in slurm.runner.commands) >= 2


def test_a_second_run_after_an_interrupted_one_deletes_the_record() -> None:
    slurm = FakeSlurm(states={"IDLE", "DRAIN"}, reason=LEAVING_REASON)

    assert leave(slurm)[0] is Ending.DELETED


def test_no_record_means_nothing_to_do() -> None:
    slurm = FakeSlurm()
    slurm.exists = False

    assert leave(slurm)[0] is Ending.NO_RECORD


def test_a_refused_deletion_is_told_and_ends() -> None:
    slurm = FakeSlurm(refuses="Requested operation is presently disabled: node is in a reservation")

    ending, log = leave(slurm)

    assert ending is Ending.REFUSED
    assert any("in a reservation" in line for line in log)


def test_without_a_controller_and_without_steps_it_ends_after_half_a_minute() -> None:
    slurm, clock = FakeSlurm(), FakeClock()
    slurm.away = True

    assert leave(slurm, clock=clock)[0] is Ending.ALONE
    assert PATIENCE_SECONDS <= clock.time < PATIENCE_SECONDS + 5


def test_a_controller_that_comes_back_in_time_deletes_the_record() -> None:
    slurm, clock = FakeSlurm(), FakeClock()
    slurm.away = True
    clock.on_sleep = lambda: setattr(slurm, "away", clock.time < 5)

    assert leave(slurm, clock=clock)[0] is Ending.DELETED


def test_without_a_controller_it_waits_for_local_steps_and_then_deletes_the_record() -> None:
    slurm, clock = FakeSlurm(), FakeClock()
    slurm.away = True
    clock.on_sleep = lambda: setattr(slurm, "away", clock.time < 100)

    ending, log = leave(slurm, steps=lambda: 3, clock=clock)

    assert ending is Ending.DELETED
    assert any("3 job steps" in line for line in log)


@pytest.mark.parametrize("code", [124, 1])
def test_an_unclear_answer_is_never_taken_for_an_absent_record(code: int) -> None:
    node = Node(name="w-0", runner=FakeRunner({"scontrol": Result(code=code, stderr="Socket timed out")}))

    with pytest.raises(ControllerUnreachableError):
        node.state()
