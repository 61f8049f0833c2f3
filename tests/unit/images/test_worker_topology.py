"""A worker waits for its place in the switch tree."""

from __future__ import annotations

from images.common.command import NO_PROGRAM, Result
from images.common.slurm_node import TOPOLOGY_REASON, Node
from images.worker.slurmd import ASK_TIMES, lift_own_drain, waits_for_place
from tests.fakes.commands import FakeClock, FakeRunner


def test_a_worker_asks_again_and_then_goes_on_without_an_answer() -> None:
    runner = FakeRunner({"scontrol show config": Result(code=NO_PROGRAM)})
    log: list[str] = []
    assert not waits_for_place(Node(name="n-0", runner=runner), log.append, FakeClock())
    assert len(runner.commands) == ASK_TIMES
    assert "going on" in log[0]


def test_a_slurmd_that_starts_again_leaves_the_waiting_to_the_agent() -> None:
    for state in ('["IDLE", "DRAIN"]', '["DOWN"]'):
        record = f'{{"nodes": [{{"name": "n-0", "state": {state}, "reason": "{TOPOLOGY_REASON}"}}]}}'
        for keep in (True, False):
            runner = FakeRunner({"scontrol show node": Result(code=0, stdout=record)})
            lifted = lift_own_drain(Node(name="n-0", runner=runner), lambda _: None, keep_waiting=keep)
            assert (lifted, runner.ran("scontrol update nodename=n-0 state=resume")) == (not keep, not keep)
