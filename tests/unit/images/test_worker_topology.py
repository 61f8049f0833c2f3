"""A worker waits for its place in the switch tree."""

from __future__ import annotations

import pytest

from images.common.command import NO_PROGRAM, Result
from images.common.slurm_node import TOPOLOGY_REASON, Node
from images.worker.slurmd import lift_own_drain
from images.worker.topology import ASK_TIMES, waits_for_place
from tests.fakes.commands import FakeClock, FakeRunner


def _node(plugin: str) -> Node:
    return Node(name="n-0", runner=FakeRunner({"scontrol show config": Result(code=0, stdout=plugin)}))


@pytest.mark.parametrize(
    ("shown", "waits"),
    [
        ("TopologyParam           = (null)\nTopologyPlugin          = topology/tree\n", True),
        ("TopologyPlugin          = topology/flat\n", False),
        ("TopologyPlugin          = topology/default\n", False),
    ],
)
def test_a_worker_registers_drained_only_where_there_is_a_tree(shown: str, *, waits: bool) -> None:
    assert waits_for_place(_node(shown), lambda _: None, FakeClock()) is waits


def test_a_worker_asks_again_and_then_goes_on_without_an_answer() -> None:
    runner = FakeRunner({"scontrol show config": Result(code=NO_PROGRAM)})
    log: list[str] = []
    assert not waits_for_place(Node(name="n-0", runner=runner), log.append, FakeClock())
    assert len(runner.commands) == ASK_TIMES
    assert "going on" in log[0]


@pytest.mark.parametrize("state", ['["IDLE", "DRAIN"]', '["DOWN"]'])
@pytest.mark.parametrize(("keep", "resumed"), [(True, False), (False, True)])
def test_a_slurmd_that_starts_again_leaves_the_waiting_to_the_agent(state: str, *, keep: bool, resumed: bool) -> None:
    record = f'{{"nodes": [{{"name": "n-0", "state": {state}, "reason": "{TOPOLOGY_REASON}"}}]}}'
    runner = FakeRunner({"scontrol show node": Result(code=0, stdout=record)})
    assert lift_own_drain(Node(name="n-0", runner=runner), lambda _: None, keep_waiting=keep) is resumed
    assert runner.ran("scontrol update nodename=n-0 state=resume") is resumed
