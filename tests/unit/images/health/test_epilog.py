"""After a job: what its user has left goes, unless the user has another job here."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from images.common.command import Result as Command
from images.common.gpu_jobs import GpuJobs
from images.health import epilog, leftovers, state
from images.health.contract import Check, Node, Result, Status, Thresholds
from images.health.epilog import Epilog
from images.health.leftovers import Moment
from images.health.local import Local
from images.health.proc import Process
from images.health.registry import Registry
from tests.fakes.commands import FakeClock, FakeRunner
from tests.unit.images.health.at_once import run_at_once
from tests.unit.images.health.processes import add_process, fork_all_the_time, fork_nothing
from tests.unit.images.health.tables import table

UID = os.getuid()


class FakeEnd:
    """A job that has ended on a node; its user is the one who runs the tests."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(leftovers, "PROTECTED", frozenset())
        self.proc = directory / "proc"
        fork_nothing(self.proc)
        self.tmp = directory / "tmp"
        self.tmp.mkdir()
        self.jobs, self.spool = directory / "jobs", directory / "spool"
        self.gpu_jobs = GpuJobs(shown=directory / "gpu-jobs", own=directory / "own")
        self.node = Node(name="w-0", root=directory, state=directory / "state")
        self.registry = Registry()
        self.log: list[str] = []
        self.killed: list[tuple[int, int]] = []
        self.swept: list[int] = []
        self.queue = Command(code=0)
        self.moments: Iterator[Moment] = repeat(Moment(seconds=time.time() + 60, ticks=float("inf")))
        self.runner = FakeRunner({"squeue": lambda _: self.queue})
        self.environment = {"SLURM_JOB_ID": "17", "SLURM_JOB_UID": str(UID)}

    def kill(self, pid: int, number: int) -> None:
        self.killed.append((pid, number))
        (self.proc / str(pid) / "stat").unlink()

    def run(self) -> None:
        Epilog(
            local=Local(node=self.node, thresholds=Thresholds()),
            registry=self.registry,
            log=self.log.append,
            runner=self.runner,
            environment=self.environment,
            jobs=self.jobs,
            spool=self.spool,
            gpu_jobs=self.gpu_jobs,
            places=(self.tmp,),
            clock=FakeClock(),
            kill=self.kill,
            sweep=self.swept.append,
            moment=lambda: next(self.moments),
        ).run()


@pytest.fixture
def end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEnd:
    run_at_once(monkeypatch, "around_job")
    monkeypatch.setattr(epilog, "in_background", lambda removals, *_: [removal() for removal in removals])
    return FakeEnd(tmp_path, monkeypatch)


def leave_things(end: FakeEnd) -> None:
    (end.tmp / "scratch").mkdir()
    (end.tmp / "scratch/file").touch()
    add_process(end.proc, 20, comm="daemon", uid=UID)


def test_what_pmix_has_left_of_the_job_s_steps_goes_and_nothing_else_of_slurmd_s(end: FakeEnd) -> None:
    """Slurm gives up where another job of the user makes names while it removes them."""
    stays = ["pmix.18.0", "pmix.170.0", f"spmix_appdir_{UID}_18.0", "job00017", "pmix.17", "cred_state"]
    for name in (*stays, "pmix.17.0", "pmix.17.1", f"spmix_appdir_{UID}_17.0", ".gone-pmix.16.0-4711"):
        (end.spool / name / "below").mkdir(parents=True)
    end.run()
    assert sorted(path.name for path in end.spool.iterdir()) == sorted(stays)
    (end.spool / "pmix.17.0").mkdir()
    end.spool.chmod(0o777)
    end.run()
    assert (end.spool / "pmix.17.0").exists(), "one that users could write in is left alone"


def test_processes_and_files_of_the_user_go(end: FakeEnd) -> None:
    leave_things(end)
    end.run()
    assert end.killed == [(20, signal.SIGTERM)]
    assert end.swept == []
    assert list(end.tmp.iterdir()) == []
    assert "job 17: ending what it has left: daemon" in end.log
    assert f"--nodelist=w-0 --user={UID}" in end.runner.commands[0]


@table("meanwhile", {"nothing": ("", []), "a job of the user starts": ("18 CONFIGURING\n", ["scratch"])})
def test_files_that_are_touched_until_the_end_go_unless_another_job_may_have_made_them(
    end: FakeEnd, meanwhile: tuple[str, list[str]]
) -> None:
    leave_things(end)
    end.moments = iter(Moment(seconds=time.time() + seconds, ticks=float("inf")) for seconds in (-60, 60))
    answers = iter(["", meanwhile[0]])
    end.runner = FakeRunner({"squeue": lambda _: Command(code=0, stdout=next(answers))})
    end.run()
    assert [path.name for path in end.tmp.iterdir()] == meanwhile[1]


def fork_faster_than_anybody_looks(end: FakeEnd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process that is ended, and each look at a moment, finds the next one, which is newer."""
    add_process(end.proc, 20, comm="forker", uid=UID)
    left = leftovers.left_processes

    def newer(uid: int, before: Moment, proc: Path) -> list[Process]:
        return left(uid, before, proc) if before == leftovers.EVER else []

    monkeypatch.setattr(leftovers, "left_processes", newer)


@table("queue, swept", {"its user has no other job": ("", [UID]), "its user has another job": ("18 RUNNING\n", [])})
def test_what_forks_too_fast_to_be_seen_is_ended_if(
    end: FakeEnd, monkeypatch: pytest.MonkeyPatch, queue: str, swept: list[int]
) -> None:
    fork_all_the_time(monkeypatch)
    end.queue = Command(code=0, stdout=queue)
    end.run()
    assert end.swept == swept
    assert len(end.log) == len(swept)


def test_nothing_is_ended_at_once_where_slurm_names_a_job_at_the_last_moment(
    end: FakeEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_faster_than_anybody_looks(end, monkeypatch)
    answers = iter(["", "18 CONFIGURING\n", ""])
    end.runner = FakeRunner({"squeue": lambda _: Command(code=0, stdout=next(answers))})
    end.run()
    assert (end.swept, end.log) == ([], [])


@table(
    "change",
    {
        "the user has another job": {"queue": Command(code=0, stdout="17 COMPLETING\n18 RUNNING\n")},
        "squeue hangs": {"queue": Command(code=124, stderr="squeue: no answer within 3 s")},
        "slurmctld is away": {"queue": Command(code=1, stderr="slurm_load_jobs error: Unable to contact")},
        "there is no job in the environment": {"environment": {}},
        "it is a user of the system": {"protected": frozenset({UID})},
    },
)
def test_everything_stays_when(end: FakeEnd, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]) -> None:
    leave_things(end)
    monkeypatch.setattr(leftovers, "PROTECTED", change.pop("protected", frozenset()))
    vars(end).update(change)
    end.run()
    assert end.killed == []
    assert end.swept == []
    assert (end.tmp / "scratch/file").exists()


def test_who_fills_the_queue_keeps_nothing_where_nobody_else_has_a_job(end: FakeEnd) -> None:
    """squeue has a bound, and its user many jobs with long texts in the queue."""
    leave_things(end)
    end.queue = Command(code=134, stderr="squeue: error: xmalloc failed")
    for used, stays in [("MIXED", True), ("IDLE", False)]:
        nodes = json.dumps({"nodes": [{"name": "w-0", "state": [used, "COMPLETING"]}]})
        end.runner.answers["scontrol show node w-0 --json"] = Command(code=0, stdout=nodes)
        end.run()
        assert (end.tmp / "scratch/file").exists() is stays


def test_two_jobs_that_end_together_leave_nothing_when_the_last_step_is_gone(end: FakeEnd) -> None:
    leave_things(end)
    end.queue = Command(code=0, stdout="17 COMPLETING\n18 COMPLETING\n")
    add_process(end.proc, 30, comm="slurmstepd", title="slurmstepd: [18.0]", uid=0)
    end.run()
    assert (end.tmp / "scratch/file").exists()
    (end.proc / "30/stat").unlink()
    add_process(end.proc, 31, comm="slurmstepd", title="slurmstepd: [17.extern]", uid=0)  # its own
    end.run()
    assert list(end.tmp.iterdir()) == []


def test_what_is_not_clean_is_looked_at_again_in_the_next_interval(end: FakeEnd) -> None:
    busy = Result(status=Status.FAIL, fault="user", message="GPU 0 in use")
    end.registry.checks["gpu-free"] = Check(
        name="gpu-free", summary="", contexts=frozenset({"epilog"}), run=lambda *_: busy, seconds=20
    )
    end.run()
    assert state.again(end.node) == {"gpu-free"}
    assert end.log == ["after job 17: fail gpu-free [user]: GPU 0 in use"]
    assert end.runner.commands == []


def test_a_mistake_in_the_program_itself_drains_no_node(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(epilog, "prepare_environment", lambda: 1 / 0)
    assert epilog.main() == 0
    assert "ZeroDivisionError" in capfd.readouterr().err
