"""slurmd's start: what it waits for, and what keeps it from starting."""

from __future__ import annotations

import json

import pytest

from images.common.command import Result
from images.common.elastic.view import marked
from images.common.mountinfo import WrongFilesystemError
from images.common.slurm_node import Node
from images.worker.slurmd import await_power_up, prepare_own_root
from tests.fakes.commands import FakeClock, FakeRunner


def test_a_volume_that_the_machine_lacks_stops_a_worker_without_the_jail(monkeypatch: pytest.MonkeyPatch) -> None:
    """What jobs write there would stay on the machine's own disk."""
    monkeypatch.setenv("MOUNTS", json.dumps([{"source": "/proc", "path": "/data", "filesystem": "virtiofs"}]))

    with pytest.raises(WrongFilesystemError, match="/proc is on proc instead of virtiofs"):
        prepare_own_root()


def record(*states: str, extra: str = marked("of the record")) -> Result:
    return Result(code=0, stdout=json.dumps({"nodes": [{"name": "w-0", "state": list(states), "extra": extra}]}))


SILENCE = Result(code=124, stderr="no answer")
NONE = Result(code=0, stdout='{"nodes": []}')


@pytest.mark.parametrize(
    ("seen", "seconds", "mark"),
    [
        pytest.param([record("ALLOCATED", "CLOUD", "POWERING_UP")], 0.0, "of the record", id="waited for"),
        pytest.param([record("POWERED_DOWN")] * 3 + [record("POWERING_UP")], 0.3, "of the record", id="not yet"),
        pytest.param([SILENCE, record("POWERING_UP")], 0.1, "of the record", id="no answer"),
        pytest.param([SILENCE] * 300 + [record("POWERED_DOWN")] * 90 + [record("POWERING_UP")], 39.0, "of the record",
                     id="slurmctld is away for half a minute"),
        pytest.param([NONE], 0.0, "of the pod", id="no record"),
        pytest.param([record("POWERING_UP", extra="what others wrote")], 0.0, "", id="a record without a mark"),
        pytest.param([record("IDLE", "CLOUD", "POWERED_DOWN")] * 200, 10.0, "of the record", id="never"),
    ],
)  # fmt: skip
def test_a_node_of_an_elastic_pool_starts_when_slurm_has_powered_it_up_and_says_what_its_record_says(
    seen: list[Result], seconds: float, mark: str
) -> None:
    clock, left, log = FakeClock(), iter(seen), list[str]()
    runner = FakeRunner({"scontrol show": lambda _: next(left)})

    assert await_power_up(Node(name="w-0", runner=runner), "of the pod", log.append, clock) == mark

    assert clock.time == pytest.approx(seconds, abs=0.11)
    assert len(log) < 5
