"""Slurm as the tests see it: tests that wait, run or have ended, and users who wait.

Nothing is remembered but in Slurm. A test's job is called `health-<test>:<node>`; slurmctld keeps it for a while after
its end (MinJobAge, 300 s), with the Comment in which it has told how it went. If nobody has read that by then, the test
is due as before.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from images.common.command import Result
from images.common.health.slurm import LIST_TIMEOUT_SECONDS, Record, Slurm, SlurmError
from images.common.slurm_records import NotUnderstoodError, entries_in, number_of, text_of, words_of
from images.health.node_tests.catalog import TESTS, Expected, NodeTest, load

SCRIPT: Final = Path(__file__).with_name("on_node.py")
LOWEST: Final = 2_147_483_645
"""The most that `--nice` takes (sbatch(1))."""

RESERVATION: Final = "health-test-"
"""With the node's name: what keeps a node for the tests alone."""
RETEST: Final = "re-test of "
"""And the comment of that, with the node's name too: a reservation without it is not ours."""

_NAME: Final = re.compile(r"health-(?P<test>[a-z0-9][a-z0-9-]*):(?P<node>[^,:\s]+)")
_ENDED: Final = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"})
_STOPPED: Final = frozenset({"CANCELLED", "PREEMPTED", "REVOKED"})
"""Ended from outside: as if it had not been."""
_IN_THE_WAY: Final = ("None", "Resources", "Priority")
"""Why a job waits that might start if a node were free, or of which nobody knows yet."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a site says. It was checked when it was written (config/sections/health.py)."""

    tests: Sequence[NodeTest]
    expected: Expected
    infiniband: frozenset[str]
    """Pools with InfiniBand between their nodes."""
    directory: str
    """On the file system that is measured."""
    account: str
    """On whose account tests run; empty without accounting."""

    @staticmethod
    def parse(given: Mapping[str, Any]) -> Settings:
        """Of a JSON file's keys, each of which may be left out."""
        return Settings(
            tests=[TESTS[name] for name in given.get("tests", [])],
            expected=load(given.get("expected", {})),
            infiniband=frozenset(given.get("infiniband", [])),
            directory=given.get("directory", "/var/tmp"),
            account=given.get("account", ""),
        )

    def fit(self, node: Record) -> list[NodeTest]:
        """The tests for which a node has what they need."""
        has_infiniband = bool(self.infiniband & node.features)
        return [test for test in self.tests if node.gpus >= test.gpus and (has_infiniband or not test.infiniband)]


@dataclass(frozen=True, kw_only=True)
class TestJob:
    """A test that waits, runs or has ended."""

    __test__ = False  # for pytest

    number: int
    test: str
    node: str
    submitted_at: float = 0.0
    waits: bool = False
    ended: str = ""
    """In which state; empty: it has not."""
    ended_at: int = 0
    comment: str = ""


@dataclass(frozen=True, kw_only=True)
class TestSlurm(Slurm):
    """slurmctld, as the user `slurm`."""

    __test__ = False  # for pytest

    settings: Settings

    def jobs(self) -> list[TestJob]:
        """Tests that wait or run, or have ended. Raises SlurmError."""
        output = self._ask(["squeue", "--me", "--states=all", "--json"], LIST_TIMEOUT_SECONDS)
        try:
            return [job for entry in entries_in(output, "jobs") if (job := _job(entry)) is not None]
        except NotUnderstoodError as error:
            raise SlurmError(str(error)) from error

    def wanted_partitions(self) -> set[str]:
        """Those in which users' jobs wait for nodes. Raises SlurmError."""
        argv = ["squeue", "--all", "--noheader", "--states=PENDING", "--format=%P|%r|%u"]
        rows = (line.split("|") for line in self._ask(argv, LIST_TIMEOUT_SECONDS).splitlines())
        waiting = (row for row in rows if row[1:2] and row[1].strip("() ") in _IN_THE_WAY and row[-1] != "slurm")
        return {partition for row in waiting for partition in row[0].split(",")}

    def submit(self, test: NodeTest, node: Record, *, reservation: str = "") -> Result:
        """Start a test. Its standard output is the number of the job."""
        # `{cpus}` and `{scratch}` are filled in on the node.
        values = {"gpus": node.gpus, **{name: f"{{{name}}}" for name in ("cpus", "scratch")}}
        argv = [word.format_map(values) for word in test.command]
        options = {
            "job-name": f"health-{test.name}:{node.name}",
            "partition": node.partitions[0],
            "nodelist": node.name,
            "nodes": "1",
            "time": str(test.minutes),
            "nice": str(LOWEST),
            "mem": "0",
            "chdir": "/",
            "output": "/dev/null",
            "error": "/dev/null",
            "account": self.settings.account,
            "gpus-per-node": str(node.gpus or ""),
            "reservation": reservation,
        }
        given = [f"--{name}={value}" for name, value in options.items() if value]
        looked_for = {"figures": {name: one.pattern for name, one in test.figures.items()}, "faults": test.faults}
        spec = json.dumps({"argv": argv, "directory": self.settings.directory, **looked_for})
        command = ["sbatch", "--parsable", "--exclusive", "--no-requeue", *given, str(SCRIPT), spec]
        # Jobs get the environment of sbatch: the pod's own is none of theirs.
        environment = {name: os.environ[name] for name in ("PATH", "SLURM_CONF") if name in os.environ}
        return self.runner(command, timeout=self.timeout, env=environment)

    def cancel(self, jobs: Sequence[TestJob]) -> Result:
        """End tests now."""
        return self._do("scancel", *(str(job.number) for job in jobs))

    def hold(self, node: str) -> Result:
        """Keep a node for the tests alone. MAINT: nodes of other reservations too.

        Who holds it has to give it back: what slurmctld ends by itself (PURGE_COMP) leaves the node MAINTENANCE (24.11
        and 26.05, `job_resv_check`).
        """
        what = [f"reservationname={RESERVATION}{node}", f"nodes={node}", "users=slurm", "starttime=now"]
        flags = ["duration=UNLIMITED", "flags=MAINT,IGNORE_JOBS", f"comment={RETEST}{node}"]
        return self._do("scontrol", "create", "reservation", *what, *flags)

    def held(self) -> list[str]:
        """Nodes that are kept for the tests. Raises SlurmError."""
        text = self._ask(["scontrol", "show", "reservation", "--oneliner"], LIST_TIMEOUT_SECONDS)
        return re.findall(rf"(?m)^ReservationName={RESERVATION}(\S+) .*Comment={RETEST}\1 *$", text)

    def release(self, node: str) -> Result:
        """Give it back. Slurm refuses while a test waits or runs there."""
        return self._do("scontrol", "delete", f"reservationname={RESERVATION}{node}")


def _job(job: Mapping[str, Any]) -> TestJob | None:
    """A test; None for what is no test, or was stopped."""
    match = _NAME.fullmatch(str(job.get("name", "")))
    states = {state.upper() for state in words_of(job.get("job_state"), ",")}
    number = job.get("job_id")
    if match is None or not isinstance(number, int) or states & _STOPPED:
        return None
    return TestJob(
        number=number,
        test=match["test"],
        node=match["node"],
        submitted_at=number_of(job.get("submit_time")) or 0.0,
        waits="PENDING" in states,
        ended=min(states & _ENDED, default=""),
        ended_at=int(number_of(job.get("end_time")) or 0),
        comment=text_of(job.get("comment")),
    )
