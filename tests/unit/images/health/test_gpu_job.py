"""Around a job on a node with GPUs: one whose GPUs are in use refuses it, and nothing else does."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from images.common.command import Result as Command
from images.common.health.contract import Check, FaultClass, Node, Result, Status, not_checked, ok
from images.health import gpu_job, state
from images.health.gpu_job import WAIT_SECONDS, refuses
from images.health.local import Local
from tests.fakes.commands import FakeClock, FakeRunner
from tests.unit.images.health.places import run_at_once

NOW = 1_795_000_000.0
IDLE = '{"nodes": [{"name": "w-0", "state": ["IDLE"], "comment": "rack 7"}]}'
DRAINED = '{"nodes": [{"name": "w-0", "state": ["IDLE", "DRAIN"], "reason": "bad memory"}]}'
IN_USE = "GPU 0: 38021 MiB in use"


class FakeJob:
    """A job that starts on a node, and what gpu-free finds before it."""

    def __init__(self, directory: Path) -> None:
        (directory / "proc").mkdir()
        self.node = Node(name="w-0", gpus=8, root=directory, state=directory / "state", job="17", job_gpus=(0, 1))
        self.finds: Result = ok()
        self.local = Local(node=self.node)
        self.log: list[str] = []
        self.clock = FakeClock()
        self.runner = FakeRunner({"scontrol show node": Command(code=0, stdout=IDLE)})

    def is_refused(self) -> bool:
        check = Check(name="gpu-free", run=lambda *_: self.finds, hardware="gpu")
        how: dict[str, Any] = {"check": check, "runner": self.runner, "clock": self.clock}
        return refuses(self.local, self.node, self.log.append, **how)

    def told(self) -> list[str]:
        return [command for command in self.runner.commands if command.startswith("scontrol update")]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    run_at_once(monkeypatch, "gpu_job")
    monkeypatch.setattr("time.time", lambda: NOW)
    return FakeJob(tmp_path)


def fail(fault: FaultClass) -> Result:
    return Result(status=Status.FAIL, fault=fault, message=IN_USE)


@pytest.mark.parametrize(
    ("finds", "unwanted", "log"),
    [
        (ok(), "", []),
        (not_checked("no nvidia-smi"), "", ["before job 17: not checked gpu-free: no nvidia-smi"]),
        (fail("user"), "off", []),
        (fail("user"), "report_only", [f"before job 17: fail gpu-free [user]: {IN_USE}"]),
    ],
)
def test_a_job_starts_and_slurm_is_asked_nothing(job: FakeJob, finds: Result, unwanted: str, log: list[str]) -> None:
    job.finds = finds
    if unwanted:
        job.local = replace(job.local, **{unwanted: frozenset({"gpu-free"})})  # type: ignore[arg-type]
    assert not job.is_refused()
    assert (job.runner.commands, job.log) == ([], log)


@pytest.mark.parametrize(("fault", "after", "refused"), [("hardware", 6.0, True), ("user", math.inf, False)])
def test_a_gpu_in_use_refuses_the_job_once_the_watcher_has_drained_the_node(
    job: FakeJob, fault: FaultClass, after: float, refused: bool
) -> None:
    """Beyond the limit it does not, and a prolog that refuses would have Slurm drain the node all the same."""
    drained: list[bool] = []
    job.runner.answers["scontrol show node"] = lambda _: Command(code=0, stdout=DRAINED if drained else IDLE)

    def look() -> None:
        if job.clock.now() >= after and job.told():
            drained.append(True)

    job.clock.on_sleep = look
    job.finds = fail(fault)
    assert job.is_refused() is refused
    assert job.clock.now() == (after if refused else WAIT_SECONDS)
    found = f"fail gpu-free [{fault}]: {IN_USE}"
    assert state.recall(job.node, state.PROLOG)["found"]["gpu-free"]["message"] == IN_USE, "the next report has it, too"
    assert job.told() == [f"scontrol update nodename=w-0 comment=health 2026-11-18T11:06:40Z | {found} || rack 7"]


@pytest.mark.parametrize(("name", "of"), [(state.PROLOG, "found"), (state.LAST, "kept")])
def test_gpus_that_are_free_again_are_in_the_next_report_too(job: FakeJob, name: str, of: str) -> None:
    before = {"gpu-free": vars(fail("user"))}
    state.remember(job.node, name, {of: before})
    job.node = replace(job.node, job_gpus=())
    assert not job.is_refused()
    assert state.recall(job.node, name) == {of: before}, "for a job without GPUs nobody has looked"
    job.node = replace(job.node, job_gpus=(0,))
    assert not job.is_refused()
    assert state.recall(job.node, state.PROLOG)["found"]["gpu-free"]["status"] == Status.OK


def test_a_job_on_a_node_that_is_drained_already_is_refused_and_the_reason_is_kept(job: FakeJob) -> None:
    job.runner.answers["scontrol show node"] = Command(code=0, stdout=DRAINED)
    job.finds = fail("hardware")
    job.node.state.touch()  # a state directory that cannot be written changes nothing else
    assert job.is_refused()
    assert job.told() == []


def test_the_job_starts_while_slurmctld_is_away(job: FakeJob) -> None:
    """Slurm would drain the node for the refusal later, with a reason that nothing lifts."""
    job.finds = fail("hardware")
    for silent in ("scontrol update", "scontrol show node"):
        job.runner.answers[silent] = Command(code=124, stderr="no answer")
        assert not job.is_refused()
        assert "job 17 starts all the same" in job.log[-1]


def test_a_mistake_in_the_program_itself_keeps_no_job_waiting(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_job, "prepare_environment", lambda: 1 / 0)
    for program in ("prolog", "epilog"):
        monkeypatch.setattr("sys.argv", ["health-gpus", program])
        assert gpu_job.main() == 0
        assert f"health-{program}: error: gave up" in capfd.readouterr().err
