"""Who stays in a pool whose `max` became smaller."""

from __future__ import annotations

from images.common.command import Result
from images.common.elastic.view import Node, Pool, are_too_many, members
from images.elastic.decide import LEAVES
from images.elastic.nodes import Nodes
from tests.fakes.commands import FakeRunner

POOL = Pool(name="gpu", least=0, most=3, conf="CPUs=2", resume_timeout=60.0)
OFF = "IDLE+CLOUD+DYNAMIC_NORM+POWERED_DOWN"
UP = "IDLE+CLOUD+DYNAMIC_NORM"
BUSY = "MIXED+CLOUD+DYNAMIC_NORM"
COMING = f"{BUSY}+NOT_RESPONDING+POWERING_UP"
LEAVING = f"{BUSY}+DRAIN+POWER_DOWN"


def nodes(*states: str) -> dict[str, Node]:
    names = [f"gpu-{number}" for number in range(len(states))]
    there = zip(names, states, strict=True)
    return {
        name: Node(name=name, states=frozenset(text.split("+")), reason=LEAVES if "POWER_DOWN" in text else "works")
        for name, text in there
        if text
    }


def test_who_is_idle_leaves_first_and_then_whose_jobs_end_soonest() -> None:
    ends = {"gpu-0": 900.0, "gpu-1": 100.0, "gpu-2": 800.0, "gpu-3": 300.0}  # gpu-4: without a limit
    for there, stay in [
        (["", "", ""], [0, 1, 2]),
        ([OFF, UP, OFF, BUSY, UP], [1, 3, 4]),
        ([UP, UP, UP, COMING], [0, 1, 3]),
        ([UP, UP, UP, "ALLOCATED+CLOUD+DYNAMIC_NORM+POWERED_DOWN"], [0, 1, 3]),  # Slurm is about to start it for a job
        ([OFF, OFF, f"{OFF}+DRAIN", BUSY], [0, 2, 3]),  # an administrator's drain stays
        ([f"{OFF}+DRAIN", BUSY, BUSY, BUSY], [1, 2, 3]),  # it stays drained, and takes no place of who has a job
        ([f"{OFF}+DRAIN", UP, UP, BUSY], [1, 2, 3]),
        ([LEAVING, BUSY, BUSY, BUSY], [1, 2, 3]),
        (["DOWN+CLOUD+DYNAMIC_NORM", BUSY, BUSY, BUSY], [1, 2, 3]),
        (["IDLE+DYNAMIC_NORM", OFF, OFF, BUSY], [0, 1, 3]),  # of the StatefulSet that the pool was
        ([BUSY, BUSY, BUSY, BUSY, BUSY], [0, 2, 4]),
    ]:
        assert members(POOL, nodes(*there), ends) == tuple(f"gpu-{number}" for number in stay), there


def test_nodes_of_a_pool_whose_name_begins_alike_are_none_of_it() -> None:
    there = {"gpu-big-7": Node(name="gpu-big-7", states=frozenset({"MIXED", "CLOUD"}))}
    assert members(POOL, there, {}) == POOL.nodes()
    assert not are_too_many(POOL, there)


def test_where_there_is_a_switch_tree_a_new_node_is_in_no_partition_before_it_is_in_the_tree() -> None:
    pool = Pool(name="gpu", least=0, most=2, conf="CPUs=2 Feature=gpu,a Weight=7", resume_timeout=60.0)
    runner = FakeRunner({"scontrol show config": Result(code=0, stdout="TopologyPlugin          = topology/tree\n")})
    asked = Nodes(print, runner)
    asked.create(pool, pool.nodes())
    asked.place(pool, pool.nodes())
    assert runner.commands[2:] == [
        "scontrol create nodename=gpu-[0-1] state=CLOUD CPUs=2 Weight=7",
        f'scontrol update nodename=gpu-[0-1] state=power_down_force extra={{"elastic": "{pool.mark}"}}',
        "scontrol update nodename=gpu-[0-1] state=drain reason=slurmstack:waiting-for-topology features=gpu,a",
    ]
    runner.answers, runner.commands = {}, []
    asked.create(pool, pool.nodes())
    assert "Feature=gpu,a" in runner.commands[2]
