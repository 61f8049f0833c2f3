"""Leaving a cluster: no job is hurt, and an administrator's word stands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from images.common.command import Result
from images.common.slurm_node import ControllerUnreachableError, Node
from images.worker.leave import PATIENCE_SECONDS, Ending, Leaving
from tests.fakes.commands import FakeClock, FakeRunner
from tests.fakes.slurmctld import FakeNode, FakeSlurmctld


def slurm_with(*, states: set[str] | None = None, reason: str = "", jobs: int = 0) -> tuple[FakeSlurmctld, FakeNode]:
    """A slurmctld with the record of one node."""
    there = tuple(str(number) for number in range(jobs))
    node = FakeNode(states=states or {"IDLE", "DYNAMIC_NORM"}, reason=reason, jobs=there)
    return FakeSlurmctld(nodes={"w-0": node}), node


def leave(
    slurm: FakeSlurmctld,
    *,
    steps: Callable[[], int] = lambda: 0,
    clock: FakeClock | None = None,
    preemptible: bool = False,
) -> tuple[Ending, list[str]]:
    log: list[str] = []
    node, clock = Node(name="w-0", runner=slurm.runner), clock or FakeClock()
    ending = Leaving(node, log.append, steps=steps, clock=clock, preemptible=preemptible).run()
    return ending, log


def test_an_administrator_who_drains_while_the_jobs_end_is_heard() -> None:
    (slurm, node), clock = slurm_with(jobs=1), FakeClock()

    def administrator() -> None:
        if clock.time > 5:
            node.reason, node.jobs = "keep for inspection", ()

    clock.on_sleep = administrator
    ending, _ = leave(slurm, clock=clock)

    assert ending is Ending.KEPT
    assert "w-0" in slurm.nodes


def test_without_a_controller_it_waits_for_local_steps_and_then_deletes_the_record() -> None:
    (slurm, _), clock = slurm_with(), FakeClock()
    slurm.away = True
    clock.on_sleep = lambda: setattr(slurm, "away", clock.time < 100)

    ending, log = leave(slurm, steps=lambda: 3, clock=clock)

    assert ending is Ending.DELETED
    assert any("3 job steps" in line for line in log)


def test_without_a_controller_and_without_steps_it_ends_on_its_own_after_half_a_minute() -> None:
    (slurm, _), clock = slurm_with(), FakeClock()
    slurm.away = True

    ending, _ = leave(slurm, clock=clock)

    assert ending is Ending.ALONE
    assert PATIENCE_SECONDS <= clock.time < PATIENCE_SECONDS + 5


@pytest.mark.parametrize("code", [124, 1])
def test_an_unclear_answer_is_never_taken_for_an_absent_record(code: int) -> None:
    node = Node(name="w-0", runner=FakeRunner({"scontrol": Result(code=code, stderr="Socket timed out")}))

    with pytest.raises(ControllerUnreachableError):
        node.record()


ELASTIC = {"IDLE", "CLOUD", "DYNAMIC_NORM"}


def test_where_slurm_no_longer_saves_power_it_leaves_as_any_node() -> None:
    """The last pool that was elastic has a fixed size now."""
    slurm, _ = slurm_with(states=set(ELASTIC))
    slurm.saves_power = False

    ending, _ = leave(slurm)

    assert ending is Ending.DELETED
    assert slurm.nodes == {}


def test_a_job_that_cannot_start_again_runs_on_and_is_asked_once() -> None:
    slurm, node = slurm_with(states=set(ELASTIC))
    node.jobs, slurm.refuses = ("1", "2"), {"2": "Requested operation is presently disabled"}
    clock = FakeClock()

    def later() -> None:
        if clock.time > 60:
            node.jobs = ()
            node.states |= {"POWERING_DOWN"}

    clock.on_sleep = later
    ending, log = leave(slurm, clock=clock, preemptible=True)

    assert ending is Ending.ENDED_BY_SLURM
    assert slurm.requeued == ["1"]
    assert [command for command in slurm.changes() if "requeue" in command] == ["scontrol requeue incomplete 1,2"]
    assert "not all of them: Requested operation is presently disabled" in log


def test_a_pod_that_was_made_in_vain_takes_no_job_from_who_gets_its_node_next() -> None:
    """It is ended as its job was cancelled, and Slurm powers its node up for another one."""
    slurm, node = slurm_with(states={"ALLOCATED", "CLOUD", "POWERING_UP"}, jobs=1)
    clock = FakeClock()

    def later() -> None:
        node.states.discard("POWERING_UP")
        if clock.time > 60:
            node.states.add("POWERING_DOWN")

    clock.on_sleep = later
    leave(slurm, clock=clock, preemptible=True)

    assert slurm.requeued == []
