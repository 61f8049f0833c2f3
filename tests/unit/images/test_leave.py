"""Leaving a cluster: no job is hurt, and an administrator's word stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from images.common.command import Result
from images.common.slurm_node import LEAVING_REASON, ControllerUnreachableError, Node
from images.worker.leave import PATIENCE_SECONDS, Ending, Leaving
from tests.fakes.commands import FakeClock, FakeRunner
from tests.fakes.slurmctld import FakeNode, FakeSlurmctld


def slurm_with(*, states: set[str] | None = None, reason: str = "", jobs: int = 0) -> tuple[FakeSlurmctld, FakeNode]:
    """A slurmctld with the record of one node."""
    there = tuple(str(number) for number in range(jobs))
    node = FakeNode(states=states or {"IDLE", "DYNAMIC_NORM"}, reason=reason, jobs=there)
    return FakeSlurmctld(nodes={"w-0": node}), node


def leave(
    slurm: FakeSlurmctld, *, steps: Callable[[], int] = lambda: 0, clock: FakeClock | None = None
) -> tuple[Ending, list[str]]:
    log: list[str] = []
    ending = Leaving(Node(name="w-0", runner=slurm.runner), log.append, steps=steps, clock=clock or FakeClock()).run()
    return ending, log


def test_an_idle_node_is_drained_and_its_record_deleted() -> None:
    slurm, _ = slurm_with()

    ending, _ = leave(slurm)

    assert ending is Ending.DELETED
    assert slurm.nodes == {}
    order = [
        command.split(" reason")[0] for command in slurm.runner.commands if "update" in command or "delete" in command
    ]
    assert order == [
        "scontrol update nodename=w-0 state=drain",
        "scontrol update nodename=w-0 state=down",
        "scontrol delete nodename=w-0",
    ]


def test_a_node_that_a_pending_job_asks_for_leaves_and_stays_on_record() -> None:
    slurm, node = slurm_with()
    slurm.wanted = "w-[0-1]"

    ending, _ = leave(slurm)

    assert ending is Ending.WANTED
    assert "w-0" in slurm.nodes
    assert "DOWN" in node.states
    assert node.reason == LEAVING_REASON, "the next pod of this name lifts it"


def test_a_running_job_is_waited_for_and_never_killed() -> None:
    (slurm, node), clock = slurm_with(jobs=1), FakeClock()

    def after_an_hour() -> None:
        assert not slurm.runner.ran("scontrol update nodename=w-0 state=down")
        assert not slurm.runner.ran("scancel")
        if clock.time > 3600:
            node.jobs = ()

    clock.on_sleep = after_an_hour
    ending, log = leave(slurm, clock=clock)

    assert ending is Ending.DELETED
    assert clock.time > 3600
    assert any("waiting for the jobs" in line for line in log)


def test_a_long_wait_is_told_at_most_every_ten_seconds_and_polled_gently() -> None:
    (slurm, node), clock = slurm_with(jobs=1), FakeClock()
    clock.on_sleep = lambda: setattr(node, "jobs", ()) if clock.time > 600 else None

    _, log = leave(slurm, clock=clock)

    assert 30 < sum("waiting" in line for line in log) <= 61
    assert len(slurm.runner.commands) < 700


def test_an_administrators_drain_stays_on_record() -> None:
    slurm, node = slurm_with(states={"IDLE", "DRAIN"}, reason="bad memory")

    ending, log = leave(slurm)

    assert ending is Ending.KEPT
    assert "w-0" in slurm.nodes
    assert node.reason == "bad memory"
    assert any("bad memory" in line for line in log)


def test_an_administrator_who_drains_while_the_jobs_end_is_heard() -> None:
    (slurm, node), clock = slurm_with(jobs=1), FakeClock()

    def administrator() -> None:
        if clock.time > 5:
            node.reason, node.jobs = "keep for inspection", ()

    clock.on_sleep = administrator
    ending, _ = leave(slurm, clock=clock)

    assert ending is Ending.KEPT
    assert "w-0" in slurm.nodes


def test_a_node_that_is_resumed_meanwhile_is_drained_again() -> None:
    (slurm, node), clock = slurm_with(jobs=1), FakeClock()

    def resume() -> None:
        if 5 < clock.time < 6:
            node.states, node.reason = {"IDLE"}, ""
        if clock.time > 20:
            node.jobs = ()

    clock.on_sleep = resume
    ending, _ = leave(slurm, clock=clock)

    assert ending is Ending.DELETED
    assert sum("state=drain" in command for command in slurm.runner.commands) >= 2


def test_a_second_run_after_an_interrupted_one_deletes_the_record() -> None:
    slurm, _ = slurm_with(states={"IDLE", "DRAIN"}, reason=LEAVING_REASON)

    assert leave(slurm)[0] is Ending.DELETED


def test_no_record_means_nothing_to_do() -> None:
    slurm, _ = slurm_with()
    slurm.nodes.clear()

    assert leave(slurm)[0] is Ending.NO_RECORD


def test_a_refused_deletion_is_told_and_ends() -> None:
    slurm, _ = slurm_with()
    slurm.refuses = {"delete w-0": "Requested operation is presently disabled: node is in a reservation"}

    ending, log = leave(slurm)

    assert ending is Ending.REFUSED
    assert any("in a reservation" in line for line in log)


def test_without_a_controller_and_without_steps_it_ends_after_half_a_minute() -> None:
    (slurm, _), clock = slurm_with(), FakeClock()
    slurm.away = True

    assert leave(slurm, clock=clock)[0] is Ending.ALONE
    assert PATIENCE_SECONDS <= clock.time < PATIENCE_SECONDS + 5


def test_a_controller_that_comes_back_in_time_deletes_the_record() -> None:
    (slurm, _), clock = slurm_with(), FakeClock()
    slurm.away = True
    clock.on_sleep = lambda: setattr(slurm, "away", clock.time < 5)

    assert leave(slurm, clock=clock)[0] is Ending.DELETED


def test_without_a_controller_it_waits_for_local_steps_and_then_deletes_the_record() -> None:
    (slurm, _), clock = slurm_with(), FakeClock()
    slurm.away = True
    clock.on_sleep = lambda: setattr(slurm, "away", clock.time < 100)

    ending, log = leave(slurm, steps=lambda: 3, clock=clock)

    assert ending is Ending.DELETED
    assert any("3 job steps" in line for line in log)


@pytest.mark.parametrize("code", [124, 1])
def test_an_unclear_answer_is_never_taken_for_an_absent_record(code: int) -> None:
    node = Node(name="w-0", runner=FakeRunner({"scontrol": Result(code=code, stderr="Socket timed out")}))

    with pytest.raises(ControllerUnreachableError):
        node.record()


ELASTIC = {"IDLE", "CLOUD", "DYNAMIC_NORM"}


def test_a_node_of_an_elastic_pool_is_powered_down_and_stays_on_record() -> None:
    slurm, node = slurm_with(states=set(ELASTIC))

    ending, _ = leave(slurm)

    assert ending is Ending.ENDED_BY_SLURM
    assert "POWERING_DOWN" in node.states


def test_an_elastic_node_that_somebody_has_drained_stays_drained() -> None:
    slurm, node = slurm_with(states={*ELASTIC, "DRAIN"}, reason="bad fan")

    ending, _ = leave(slurm)

    assert ending is Ending.KEPT
    assert (node.states, node.reason) == ({*ELASTIC, "DRAIN"}, "bad fan")


def test_where_slurm_no_longer_saves_power_it_leaves_as_any_node() -> None:
    """The last pool that was elastic has a fixed size now."""
    slurm, _ = slurm_with(states=set(ELASTIC))
    slurm.saves_power = False

    ending, _ = leave(slurm)

    assert ending is Ending.DELETED
    assert slurm.nodes == {}
