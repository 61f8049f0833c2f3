"""Before a job: a node that would hurt it refuses it, and nothing else does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from images.common.command import Result as Command
from images.health import prolog
from images.health.contract import (
    Check,
    Context,
    FaultClass,
    Hardware,
    Node,
    Result,
    Status,
    Thresholds,
    not_checked,
    ok,
)
from images.health.local import Local
from images.health.prolog import REFUSED, Prolog
from images.health.registry import Registry
from images.health.state import State
from tests.unit.images.fakes import FakeRunner

IDLE = "NodeName=w-0\n   State=IDLE X=1\n"
DRAINED = "NodeName=w-0\n   State=IDLE+DRAIN X=1\n   Reason=bad memory [anna@2026-11-21T21:55:03]\n"
Program = Callable[..., Result]


class FakeJob:
    """A job that starts on a node."""

    def __init__(self, directory: Path, *, record: Command | None = None) -> None:
        (directory / "proc").mkdir()
        self.node = Node(name="w-0", gpus=8, root=directory, state=directory / "state")
        self.jobs = directory / "jobs"
        self.registry = Registry()
        self.off: frozenset[str] = frozenset()
        self.report_only: frozenset[str] = frozenset()
        self.log: list[str] = []
        self.runner = FakeRunner({"scontrol show node": record or Command(code=0, stdout=IDLE)})
        self.environment = {
            "SLURM_JOB_ID": "17",
            "SLURM_JOB_UID": str(os.getuid()),
            "SLURM_JOB_GID": str(os.getgid()),
            "SLURM_JOB_GPUS": "0,1",
        }

    def add(
        self, name: str, program: Program | Result, context: Context = "prolog", hardware: Hardware = "any"
    ) -> None:
        run = (lambda *_: program) if isinstance(program, Result) else program
        self.registry.checks[name] = Check(
            name=name, summary="", contexts=frozenset({context}), run=run, hardware=hardware, seconds=20
        )

    def start(self, *, seconds: float = 20.0) -> int:
        return Prolog(
            local=Local(node=self.node, thresholds=Thresholds(), off=self.off, report_only=self.report_only),
            registry=self.registry,
            state=State(directory=self.node.state),
            log=self.log.append,
            runner=self.runner,
            environment=self.environment,
            jobs=self.jobs,
            seconds=seconds,
        ).run()


@pytest.fixture
def job(tmp_path: Path) -> FakeJob:
    return FakeJob(tmp_path)


def fail(fault: FaultClass, message: str = "broken") -> Result:
    return Result(status=Status.FAIL, fault=fault, message=message)


def test_on_a_healthy_node_the_job_starts_and_slurm_is_not_asked_anything(job: FakeJob) -> None:
    job.add("gpu-free", ok())
    assert job.start() == 0
    assert job.runner.commands == []
    assert job.log == []
    assert (job.jobs / "17").is_dir()


@pytest.mark.parametrize("fault", ["hardware", "user"])
def test_a_broken_machine_or_a_busy_gpu_refuses_the_job_and_drains_with_a_reason_that_can_be_lifted(
    job: FakeJob, fault: FaultClass
) -> None:
    job.add("gpu-free", fail(fault, "GPU 0: 38021 MiB in use"))
    job.add("clock", ok())
    assert job.start() == REFUSED
    assert job.runner.commands[-1] == (
        f"scontrol update nodename=w-0 state=drain reason=health/gpu-free [{fault}]: GPU 0: 38021 MiB in use"
    )
    assert State(directory=job.node.state).again() == {"gpu-free"}
    assert f"before job 17: fail gpu-free [{fault}]: GPU 0: 38021 MiB in use" in job.log


def test_a_check_that_is_only_reported_refuses_no_job(job: FakeJob) -> None:
    job.report_only = frozenset({"gpu-free"})
    job.add("gpu-free", fail("user", "GPU 0: 38021 MiB in use"))
    assert job.start() == 0
    assert job.runner.commands == []
    assert job.log == ["before job 17: fail gpu-free [user]: GPU 0: 38021 MiB in use"]


def test_the_gravest_fault_is_the_reason(job: FakeJob) -> None:
    job.add("a", fail("user"))
    job.add("b", fail("hardware"))
    job.add("c", fail("node"))
    job.start()
    assert "health/b [hardware]" in job.runner.commands[-1]


def test_what_may_be_wrong_on_all_nodes_at_once_is_left_to_the_watcher(job: FakeJob) -> None:
    job.add("filesystem", fail("node", "/jail is slow"))
    assert job.start() == 0
    assert job.runner.commands == []
    assert State(directory=job.node.state).again() == {"filesystem"}


def test_an_administrators_drain_keeps_its_reason(tmp_path: Path) -> None:
    job = FakeJob(tmp_path, record=Command(code=0, stdout=DRAINED))
    job.add("gpu-free", fail("hardware"))
    assert job.start() == REFUSED
    assert not job.runner.ran("scontrol update")


def test_without_slurmctld_the_job_is_refused_all_the_same(tmp_path: Path) -> None:
    job = FakeJob(tmp_path, record=Command(code=124, stderr="no answer"))
    job.add("gpu-free", fail("hardware"))
    assert job.start() == REFUSED
    assert not job.runner.ran("scontrol update")


def hangs(*_: object) -> Result:
    time.sleep(600)
    return ok()


def crashes(*_: object) -> Result:
    os._exit(9)


@pytest.mark.parametrize("program", [hangs, crashes, not_checked("nvidia-smi: no such program")])
def test_a_check_that_hangs_crashes_or_does_not_know_refuses_nothing(job: FakeJob, program: Program | Result) -> None:
    job.add("gpu-free", program)
    assert job.start(seconds=0.3) == 0
    assert job.runner.commands == []
    assert any("not checked gpu-free" in line for line in job.log)


def test_a_warning_refuses_nothing(job: FakeJob) -> None:
    job.add("gpu-thermal", Result(status=Status.WARN, fault="hardware", message="82 degrees"))
    assert job.start() == 0


def test_only_checks_for_prologs_run_and_only_where_there_is_the_hardware(job: FakeJob) -> None:
    job.add("disks", fail("hardware"), "periodic")
    job.add("infiniband", fail("hardware"), hardware="infiniband")
    job.add("dns", fail("hardware"))
    job.off = frozenset({"dns"})
    assert job.start() == 0


def test_checks_see_the_job(job: FakeJob) -> None:
    job.add("gpu-free", lambda node, *_: fail("user", f"{node.job} {node.job_uid} {node.job_gpus}"))
    job.start()
    assert f"17 {os.getuid()} (0, 1)" in job.log[0]


def test_a_directory_that_cannot_be_made_keeps_no_job_from_starting(job: FakeJob) -> None:
    job.jobs.touch()
    assert job.start() == 0
    assert "gets no temporary directory" in job.log[0]


def test_a_state_directory_that_cannot_be_written_changes_nothing_else(job: FakeJob) -> None:
    job.node.state.touch()
    job.add("gpu-free", fail("hardware"))
    assert job.start() == REFUSED


def test_a_mistake_in_the_program_itself_lets_jobs_start(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prolog, "prepare_environment", lambda: 1 / 0)
    assert prolog.main() == 0
    assert "ZeroDivisionError" in capfd.readouterr().err
