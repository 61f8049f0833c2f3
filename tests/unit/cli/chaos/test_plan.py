"""Which faults come when."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from cli.chaos.run import BETWEEN, DEFAULT, DELETE, LOSE, allowed, plan, shown
from slurm.names import CONTROLLER


def test_the_same_seed_gives_the_same_faults_and_another_one_others() -> None:
    assert plan(7, 240, DEFAULT, controllers=2) == plan(7, 240, DEFAULT, controllers=2)
    assert plan(7, 240, DEFAULT, controllers=2) != plan(8, 240, DEFAULT, controllers=2)


def test_faults_are_some_seconds_apart_and_the_begin_and_the_end_are_calm() -> None:
    for seed in range(50):
        times = [fault.at for fault in plan(seed, 240, DEFAULT, controllers=2)]
        assert times[0] == 10
        assert times[-1] <= 230
        spans = [later - first for first, later in pairwise(times)]
        assert all(BETWEEN[0] - 0.2 <= span <= BETWEEN[1] + 0.2 for span in spans)
        assert 11 <= len(times) <= 36


def test_workers_are_hit_where_they_are_named_alone() -> None:
    assert "worker" not in allowed(())
    assert plan(1, 240, (), controllers=2) == [], "nothing that is there"
    assert allowed(["worker"]) == ("worker",)
    assert allowed(["slurmdbd,controller", "login"]) == ("controller", "slurmdbd", "login")
    assert {fault.component for fault in plan(1, 3600, allowed(["controller"]), controllers=2)} == {"controller"}


def test_a_fault_picks_one_of_the_pods_that_are_there() -> None:
    fault = plan(3, 240, ["login"], controllers=2)[0]
    assert fault.pod(["b", "a"]) in {"a", "b"}
    assert fault.pod(["a"]) == "a"
    assert "login" in shown([fault])


def test_the_only_controller_always_gets_its_goodbye() -> None:
    """Two that write one state destroy it; all else of the plan is the same."""
    one, two = (plan(1, 3600, DEFAULT, controllers=number) for number in (1, 2))
    hard = [fault for fault in two if (fault.component, fault.kind) == (CONTROLLER, LOSE)]
    assert hard
    assert [fault for fault in one if fault not in two] == [replace(fault, kind=DELETE) for fault in hard]
