"""Before a job: a node that would hurt it refuses it, and nothing else does."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from images.common.command import Result as Command
from images.common.gpu_jobs import GpuJobs
from images.health import prolog, state
from images.health.contract import Check, Context, FaultClass, Hardware, Node, Result, Status, Thresholds
from images.health.local import Local
from images.health.prolog import REFUSED, WAIT_SECONDS, Prolog
from images.health.registry import Registry
from images.health.verdict import ok
from tests.fakes.commands import FakeClock, FakeRunner
from tests.unit.images.health.at_once import run_at_once
from tests.unit.images.health.tables import table

NOW = 1_795_000_000.0
IDLE = '{"nodes": [{"name": "w-0", "state": ["IDLE"], "comment": "rack 7"}]}'
DRAINED = '{"nodes": [{"name": "w-0", "state": ["IDLE", "DRAIN"], "reason": "bad memory"}]}'
Program = Callable[..., Result]


class FakeJob:
    """A job that starts on a node."""

    def __init__(self, directory: Path, *, record: Command | None = None) -> None:
        (directory / "proc").mkdir()
        self.node = Node(name="w-0", gpus=8, root=directory, state=directory / "state")
        self.jobs = directory / "jobs"
        self.gpu_jobs = GpuJobs(shown=directory / "gpu-jobs", own=directory / "own")
        self.cells = directory / "cells"
        self.registry = Registry()
        self.off: frozenset[str] = frozenset()
        self.report_only: frozenset[str] = frozenset()
        self.log: list[str] = []
        self.clock = FakeClock()
        self.runner = FakeRunner({"scontrol show node": record or Command(code=0, stdout=IDLE)})
        self.environment = {
            "SLURM_JOB_ID": "17",
            "SLURM_JOB_UID": str(os.getuid()),
            "SLURM_JOB_GID": str(os.getgid()),
            "SLURM_JOB_GPUS": "0,1",
        }

    def add(self, name: str, program: Program | Result) -> None:
        """A check: "disks" is a periodic one, "infiniband" is for that hardware, all others are for prologs."""
        run = (lambda *_: program) if isinstance(program, Result) else program
        hardware: Hardware = "infiniband" if name == "infiniband" else "any"
        contexts: frozenset[Context] = frozenset({"periodic"} if name == "disks" else {"prolog"})
        self.registry.checks[name] = Check(
            name=name, summary="", contexts=contexts, run=run, hardware=hardware, seconds=20
        )

    def start(self) -> int:
        return Prolog(
            local=Local(node=self.node, thresholds=Thresholds(), off=self.off, report_only=self.report_only),
            registry=self.registry,
            log=self.log.append,
            runner=self.runner,
            environment=self.environment,
            jobs=self.jobs,
            gpu_jobs=self.gpu_jobs,
            cells=self.cells,
            clock=self.clock,
            now=lambda: NOW,
        ).run()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeJob:
    run_at_once(monkeypatch, "around_job")
    return FakeJob(tmp_path)


def fail(fault: FaultClass, message: str = "broken") -> Result:
    return Result(status=Status.FAIL, fault=fault, message=message)


HOT = Result(status=Status.WARN, fault="hardware", message="82 degrees")
IN_USE = "GPU 0: 38021 MiB in use"
NOBODY_KNOWS = Result(status=Status.NOT_CHECKED, message="nvidia-smi: no such program")


@table(
    "checks, log",
    {
        "all is well": ({"gpu-free": ok()}, []),
        "a warning": ({"gpu-thermal": HOT}, ["warn gpu-thermal [hardware]: 82 degrees"]),
        "a check does not know": ({"gpu-free": NOBODY_KNOWS}, ["not checked gpu-free: nvidia-smi: no such program"]),
        "it is left to the watcher": ({"filesystem": fail("node", "slow")}, ["fail filesystem [node]: slow"]),
        "a check is only reported": ({"reported": fail("user", IN_USE)}, [f"fail reported [user]: {IN_USE}"]),
        "a check is for other occasions": ({"disks": fail("hardware")}, []),
        "a check is for hardware that is not here": ({"infiniband": fail("hardware")}, []),
        "a check is turned off": ({"dns": fail("hardware")}, []),
    },
)
def test_a_job_starts_and_slurm_is_asked_nothing_when(
    job: FakeJob, checks: dict[str, Program | Result], log: list[str]
) -> None:
    job.off, job.report_only = frozenset({"dns"}), frozenset({"reported"})
    for name, program in checks.items():
        job.add(name, program)
    assert job.start() == 0
    assert job.runner.commands == []
    assert len(job.log) == len(log)
    assert all(line.startswith(f"before job 17: {start}") for line, start in zip(job.log, log, strict=True))
    assert (job.jobs / "17").is_dir()
    assert state.again(job.node) == ({"filesystem", "reported"} & set(checks))


class Watcher:
    """Drains the node some seconds after the report; or never."""

    def __init__(self, job: FakeJob, after: float = math.inf) -> None:
        self.drained = False
        self._job, self._after = job, after
        job.runner.answers["scontrol show node"] = lambda _: Command(code=0, stdout=DRAINED if self.drained else IDLE)
        job.clock.on_sleep = self._look

    def _look(self) -> None:
        self.drained = self._job.clock.now() >= self._after and self._job.runner.ran("scontrol update")


@pytest.mark.parametrize(
    ("fault", "after", "code"), [("hardware", 6.0, REFUSED), ("user", 2.0, REFUSED), ("user", math.inf, 0)]
)
def test_a_broken_machine_or_a_busy_gpu_refuses_the_job_once_the_watcher_has_drained_the_node(
    job: FakeJob, fault: FaultClass, after: float, code: int
) -> None:
    """Beyond the limit it does not, and a prolog that refuses would have Slurm drain the node all the same."""
    Watcher(job, after)
    job.add("gpu-free", fail(fault, IN_USE))
    job.add("clock", ok())
    assert job.start() == code
    assert job.clock.now() == (after if code else WAIT_SECONDS)
    (told,) = [command for command in job.runner.commands if command.startswith("scontrol update")]
    found = f"fail gpu-free [{fault}]: {IN_USE}"
    assert told == f"scontrol update nodename=w-0 comment=health 2026-11-18T11:06:40Z | {found} || rack 7"
    assert state.again(job.node) == {"gpu-free"}
    assert f"before job 17: fail gpu-free [{fault}]: {IN_USE}" in job.log


def test_all_that_refuses_is_reported_with_what_the_job_is_and_an_administrator_s_comment_stays(job: FakeJob) -> None:
    faults: list[FaultClass] = ["user", "hardware", "node"]
    for name, fault in zip("abc", faults, strict=True):
        job.add(name, lambda node, *_, fault=fault: fail(fault, f"{node.job} {node.job_gpus}"))
    job.start()
    (told,) = [command for command in job.runner.commands if command.startswith("scontrol update")]
    assert told.endswith("| fail a [user]: 17 (0, 1) | fail b [hardware]: 17 (0, 1) || rack 7")


def test_a_job_on_a_node_that_is_drained_already_is_refused_and_the_reason_is_kept(job: FakeJob) -> None:
    job.runner.answers["scontrol show node"] = Command(code=0, stdout=DRAINED)
    job.add("gpu-free", fail("hardware"))
    job.node.state.touch()  # a state directory that cannot be written changes nothing else
    assert job.start() == REFUSED
    assert not job.runner.ran("scontrol update")


def test_the_job_starts_while_slurmctld_is_away(job: FakeJob) -> None:
    """Slurm would drain the node for the refusal later, with a reason that nothing lifts."""
    job.add("gpu-free", fail("hardware"))
    for silent in ("scontrol update", "scontrol show node"):
        job.runner.answers[silent] = Command(code=124, stderr="no answer")
        assert job.start() == 0
        assert "job 17 starts all the same" in job.log[-1]


def test_a_directory_that_cannot_be_made_keeps_no_job_from_starting(job: FakeJob) -> None:
    job.jobs.touch()
    assert job.start() == 0
    assert "gets no temporary directory" in job.log[0]


def test_what_sbcast_has_written_before_the_first_step_stays(job: FakeJob) -> None:
    """Where the job has no cell yet, it is of an earlier run of the job."""
    (job.jobs / "17").mkdir(mode=0o755, parents=True)
    (job.jobs / "17/sent").touch()
    (job.cells / "17").mkdir(parents=True)
    assert job.start() == 0
    assert (job.jobs / "17/sent").exists()
    (job.cells / "17").rmdir()
    assert job.start() == 0
    assert not (job.jobs / "17/sent").exists()
    assert job.log == []


def test_a_mistake_in_the_program_itself_lets_jobs_start(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prolog, "prepare_environment", lambda: 1 / 0)
    assert prolog.main() == 0
    assert "ZeroDivisionError" in capfd.readouterr().err
