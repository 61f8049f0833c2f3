"""slurmd's start: what it waits for, and what keeps it from starting."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from images.common.command import NO_PROGRAM, Result
from images.common.mountinfo import WrongFilesystemError
from images.common.slurm_node import TOPOLOGY_REASON, Node
from images.common.slurm_records import NodeRecord
from images.worker import slurmd
from images.worker.slurmd import ASK_TIMES, await_power_up, lift_own_drain, prepare_own_root, waits_for_place
from tests.fakes.commands import FakeClock, FakeRunner


def test_a_volume_that_the_machine_lacks_stops_a_worker_without_the_jail(monkeypatch: pytest.MonkeyPatch) -> None:
    """What jobs write there would stay on the machine's own disk."""
    monkeypatch.setenv("MOUNTS", json.dumps([{"source": "/proc", "path": "/data", "filesystem": "virtiofs"}]))

    with pytest.raises(WrongFilesystemError, match="/proc is on proc instead of virtiofs"):
        prepare_own_root()


def record(*states: str, extra: str = '{"elastic": "of the record"}') -> Result:
    return Result(code=0, stdout=json.dumps({"nodes": [{"name": "w-0", "state": list(states), "extra": extra}]}))


SILENCE = Result(code=124, stderr="no answer")


@pytest.mark.parametrize(
    ("seen", "seconds", "mark"),
    [
        pytest.param([record("ALLOCATED", "CLOUD", "POWERING_UP")], 0.0, "of the record", id="waited for"),
        pytest.param([SILENCE] * 300 + [record("POWERED_DOWN")] * 90 + [record("POWERING_UP")], 39.0, "of the record",
                     id="slurmctld is away for half a minute"),
        pytest.param([record("IDLE", "CLOUD", "POWERED_DOWN")] * 200, 10.0, "of the record", id="never"),
    ],
)  # fmt: skip
def test_a_node_of_an_elastic_pool_starts_when_slurm_has_powered_it_up_and_says_what_its_record_says(
    seen: list[Result], seconds: float, mark: str
) -> None:
    clock, left, log = FakeClock(), iter(seen), list[str]()
    runner = FakeRunner({"scontrol show": lambda _: next(left)})

    found = await_power_up(Node(name="w-0", runner=runner), log.append, clock)

    assert found is not None
    assert found.mark == mark

    assert clock.time == pytest.approx(seconds, abs=0.11)
    assert len(log) < 5


def test_a_worker_asks_again_and_then_goes_on_without_an_answer() -> None:
    runner = FakeRunner({"scontrol show config": Result(code=NO_PROGRAM)})
    log: list[str] = []
    assert not waits_for_place(Node(name="n-0", runner=runner), log.append, FakeClock())
    assert len(runner.commands) == ASK_TIMES
    assert "going on" in log[0]


def test_a_slurmd_that_starts_again_leaves_the_waiting_to_the_agent() -> None:
    for state in (["IDLE", "DRAIN"], ["DOWN"]):
        record = NodeRecord(name="n-0", states=frozenset(state), reason=TOPOLOGY_REASON)
        for keep in (True, False):
            runner = FakeRunner({})
            lift_own_drain(Node(name="n-0", runner=runner), record, lambda _: None, keep_waiting=keep)
            assert runner.ran("scontrol update nodename=n-0 state=resume") is not keep


def test_jobs_on_machines_with_rdma_may_lock_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    monkeypatch.setattr(resource, "setrlimit", lambda *call: calls.append(call))
    slurmd.raise_locked_memory(print, devices=tmp_path / "infiniband")
    assert not calls, "without RDMA"

    slurmd.raise_locked_memory(print, devices=tmp_path)

    assert calls == [(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))]
