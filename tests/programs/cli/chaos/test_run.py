"""One run with a played cluster: what is broken, what is submitted, what is left."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest

from cli.chaos import run as chaos_run
from cli.chaos.run import Chaos, Fault, Outcome, text
from cli.errors import Failure
from cli.kubectl.client import Kubectl
from cli.stack import Stack
from config import load_config
from local.report import PlainReport
from tests import stacks

FAULTS = [
    Fault(at=0.1, component="controller", kind="delete", which=0.5),
    Fault(at=0.2, component="slurmdbd", kind="lose", which=0.5),
    Fault(at=0.3, component="database", kind="crash", which=0.5),
    Fault(at=0.4, component="slurmdbd", kind="stop", which=0.5),
    Fault(at=0.5, component="elastic", kind="delete", which=0.5),
]


class Cluster:
    """One in which jobs are accepted and run at once, with all that Slurm and the jail say of them."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.jobs: dict[int, str] = {}
        """Job id -> name."""
        self.forgets: set[int] = set()
        """Jobs that leave no mark."""
        self.waiting: set[int] = set()
        """Jobs that stay in the queue, and in no record yet."""
        self.silent = self.holds = False
        self.unready: set[str] = set()
        self.scripts: list[str] = []

    def items(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
        component = arguments[-1].partition("=")[2]
        if kind != "pod" or component == "elastic":
            return []
        ready = {"containerStatuses": [{"ready": component not in self.unready, "restartCount": 0}], "phase": "Running"}
        return [{"metadata": {"name": f"{component}-0", "labels": {}}, "spec": {}, "status": ready}]

    def run(self, *arguments: str, **_: Any) -> subprocess.CompletedProcess[str]:
        words = " ".join(arguments)
        if "sshd" in arguments:
            return self._in_jail(arguments[-1])
        if {"squeue", "sacct", "scancel"} & set(arguments):
            assert "--user=10001" in arguments, "others' jobs may be called anything, and have lines in their names"
        if "squeue" in arguments:
            left = [f"{job}|{name}|PENDING" for job, name in self.jobs.items() if self.holds or job in self.waiting]
            return subprocess.CompletedProcess([], 1 if self.silent else 0, "\n".join(left), "")
        if "sacct" in arguments:
            lines = [f"{job}|{name}|COMPLETED" for job, name in self.jobs.items() if job not in self.waiting]
            return subprocess.CompletedProcess([], 0, "\n".join(lines), "")
        self.said.append(words)
        return subprocess.CompletedProcess([], 0, "7\n", "")

    def _in_jail(self, line: str) -> subprocess.CompletedProcess[str]:
        self.scripts.append(line)
        printed = []
        for number in re.findall(r"echo (\d+) \$job", line):
            job = 100 + len(self.jobs)
            self.jobs[job] = re.findall(rf"--job-name=(chaos-\w+-{number}) ", line)[0]
            printed.append(f"{number} {job}")
        if "find" in line:
            numbers = {job: name.rpartition("-")[2] for job, name in self.jobs.items() if job not in self.forgets}
            printed = [f"m.{number}.{job}.0.abcdef 4" for job, number in numbers.items()]
        return subprocess.CompletedProcess([], 0, "\n".join(printed), "")


def chaos(cluster: Cluster, faults: list[Fault] | None = None) -> Outcome:
    sections = {**stacks.existing(), "users": {"alice": {"uid": 10001}}}
    stack = Stack(name="prod", file=Path("x"), sections=sections, config=load_config(sections))
    one = Chaos(cast("Kubectl", cluster), stack, PlainReport(io.StringIO()), user="alice")
    return one.run(FAULTS if faults is None else faults, 0.8, seed=7, rate=50, options=["--partition=main"])


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos_run, "_POLL", 0.01)
    monkeypatch.setattr(chaos_run, "SETTLE", 0.2)
    monkeypatch.setattr(chaos_run, "_INTERRUPTED_SETTLE", 0.2)


def test_each_fault_is_done_as_planned_and_what_is_not_there_is_told() -> None:
    cluster = Cluster()
    outcome = chaos(cluster)
    assert outcome.ok
    deleted = [line for line in cluster.said if line.startswith("delete pod")]
    assert deleted == [
        "delete pod controller-0 -n slurm --wait=false",
        "delete pod slurmdbd-0 -n slurm --wait=false --force --grace-period=0",
    ]
    assert [line.split()[3:6] for line in cluster.said if line.startswith("exec")] == [
        ["database-0", "-c", "mariadbd"],
        ["slurmdbd-0", "-c", "slurmdbd"],
    ]
    assert [fault.get("skipped") for fault in outcome.faults] == [None, None, None, None, "no pod of it was ready"]
    said = text(outcome)
    assert "seed 7: 4 faults" in said
    assert "0 LOST" in said


def test_jobs_are_submitted_as_the_user_without_the_pod_s_rights_and_go_with_their_marks() -> None:
    cluster = Cluster()
    outcome = chaos(cluster)
    assert outcome.accepted == outcome.attempts == len(cluster.jobs) > 3
    assert "--partition=main" in cluster.scripts[1]
    assert cluster.scripts[0].startswith("cd && mkdir -m 700 .slurmstack-chaos-")
    assert cluster.scripts[-1].startswith("cd && rm -rf .slurmstack-chaos-")


def test_a_job_that_left_no_mark_is_lost_and_named() -> None:
    cluster = Cluster()
    cluster.forgets = {101}
    outcome = chaos(cluster)
    assert not outcome.ok
    assert outcome.verdict is not None
    assert outcome.verdict.lost == [101]
    assert "1 LOST: 101" in text(outcome)
    assert outcome.as_data()["jobs"]["lost"] == [101]


@pytest.mark.parametrize("waits", ["all", "one"])
def test_jobs_that_never_begin_are_no_success(waits: str) -> None:
    cluster = Cluster()
    cluster.waiting = {101} if waits == "one" else set(range(100, 1000))
    cluster.forgets = cluster.waiting
    outcome = chaos(cluster)
    assert not outcome.ok
    assert outcome.as_data()["ok"] is False
    assert ("NOTHING HAS RUN" if waits == "all" else "NOT KNOWN of those in the queue") in text(outcome)


def test_a_cluster_that_accepts_no_job_is_not_broken_further(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    monkeypatch.setattr(cluster, "_in_jail", lambda _: subprocess.CompletedProcess([], 0, "", "sbatch: error: no"))
    with pytest.raises(Failure, match="no job is accepted before anything was broken"):
        chaos(cluster)
    assert not cluster.said


def test_what_is_interrupted_is_judged_and_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()

    def interrupted(*_: Any) -> dict[str, Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Chaos, "_do", interrupted)
    outcome = chaos(cluster)
    assert outcome.interrupted
    assert outcome.ok
    assert ", interrupted" in text(outcome)
    assert "rm -rf" in cluster.scripts[-1]


def test_a_slurmctld_that_does_not_come_back_is_said_and_the_marks_go() -> None:
    cluster = Cluster()
    cluster.silent = True
    with pytest.raises(Failure, match="slurmctld has not answered"):
        chaos(cluster)
    assert "rm -rf" in cluster.scripts[-1]


def test_what_still_waits_at_the_end_is_cancelled() -> None:
    cluster = Cluster()
    cluster.holds = True
    chaos(cluster, [])
    (line,) = [line for line in cluster.said if "scancel" in line]
    assert line.split()[-len(cluster.jobs) :] == [str(job) for job in cluster.jobs]


def test_a_database_is_left_alone_while_slurmdbd_may_convert_it() -> None:
    cluster = Cluster()
    cluster.unready = {"slurmdbd"}
    faults = [fault for fault in FAULTS if fault.component == "database"]
    outcome = chaos(cluster, faults)
    assert faults
    assert {fault["skipped"] for fault in outcome.faults} == {
        "slurmdbd was not ready, which may be converting its tables"
    }
