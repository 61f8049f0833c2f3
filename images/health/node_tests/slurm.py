"""Slurm as the tests see it: nodes with their last results, tests that wait, run or have ended, and users who wait.

Nothing is remembered but in Slurm. A test's job is called `health-<test>:<node>,<node>`; slurmctld keeps it for a while
after its end (MinJobAge, 300 s), with the Comment in which it has told how it went. If nobody has read that by then,
the test is due as before. Reads what 24.11 (data_parser v0.0.42) and 26.05 (v0.0.45) print with `--json`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from images.common.command import Result
from images.common.slurm_records import NotUnderstoodError, entries_in, number_of, text_of, words_of
from images.health.node_list import LIST_TIMEOUT_SECONDS
from images.health.node_tests.judge import as_json
from images.health.node_tests.plan import NodeView, Submit, TestJob, Waiting
from images.health.node_tests.results import decode
from images.health.node_tests.settings import Settings
from images.health.slurm import Record, Slurm, SlurmError

SCRIPT: Final = Path(__file__).with_name("on_node.py")
LOWEST: Final = 2_147_483_645
"""The most that `--nice` takes (sbatch(1))."""

_NAME: Final = re.compile(r"health-(?P<test>[a-z0-9][a-z0-9-]*):(?P<nodes>[^,:\s]+(?:,[^,:\s]+)*)")
_ENDED: Final = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"})
_STOPPED: Final = frozenset({"CANCELLED", "PREEMPTED", "REVOKED"})
"""Ended from outside: as if it had not been."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A test that has come to its end."""

    number: int
    test: str
    nodes: tuple[str, ...]
    began: int
    """In seconds since 1970."""
    state: str
    comment: str


def job_name(test: str, nodes: Sequence[str]) -> str:
    """The name of a test's job."""
    return f"health-{test}:{','.join(nodes)}"


@dataclass(frozen=True, kw_only=True)
class TestSlurm(Slurm):
    """slurmctld, as the user `slurm`."""

    __test__ = False  # for pytest

    settings: Settings

    def nodes(self) -> Sequence[NodeView]:
        """All nodes. Raises SlurmError."""
        return [self._view(record) for record in super().nodes()]

    def node(self, name: str) -> NodeView | None:
        """One node as it is now; None if there is none any more. Raises SlurmError."""
        record = super().node(name)
        return None if record is None else self._view(record)

    def _view(self, record: Record) -> NodeView:
        pool = next((feature for feature in record.pool.split(",") if feature in self.settings.pools), record.pool)
        return NodeView(**{**vars(record), "pool": pool}, records=decode(record.extra))

    def jobs(self) -> tuple[list[TestJob], list[Ended]]:
        """Tests that wait or run, and those that have ended. Raises SlurmError."""
        said = self._ask(["squeue", "--me", "--states=all", "--json"], LIST_TIMEOUT_SECONDS)
        try:
            found = [_job(job) for job in entries_in(said, "jobs")]
        except NotUnderstoodError as error:
            raise SlurmError(str(error)) from error
        return [job for job in found if isinstance(job, TestJob)], [job for job in found if isinstance(job, Ended)]

    def waiting(self, tests: Iterable[int]) -> list[Waiting]:
        """Jobs that wait and are none of the tests. Raises SlurmError."""
        argv = ["squeue", "--all", "--noheader", "--states=PENDING", "--format=%A|%P|%r"]
        own = {str(number) for number in tests}
        rows = [line.split("|", 2) for line in self._ask(argv, LIST_TIMEOUT_SECONDS).splitlines()]
        return [
            Waiting(partitions=tuple(words_of(row[1], ",")), reason=row[2].strip())
            for row in rows
            if len(row) == len(("job", "partition", "reason")) and row[0].strip() not in own
        ]

    def submit(self, wish: Submit, *, reservation: str = "") -> Result:
        """Start a test. Its standard output is the number of the job."""
        test, names = wish.test, [node.name for node in wish.nodes]
        spec = {
            "argv": list(test.command(replace(self.settings.place, gpus=wish.nodes[0].gpus))),
            "keep": test.keep,
            "seconds": test.seconds,
            "environment": dict(test.environment),
            "directory": self.settings.place.directory,
        }
        options = {
            "job-name": job_name(test.name, names),
            "partition": self.settings.partition or wish.partition,
            "nodelist": ",".join(names),
            "nodes": str(len(names)),
            "time": str(test.minutes),
            "nice": str(LOWEST),
            "mem": "0",
            "chdir": "/",
            "output": "/dev/null",
            "error": "/dev/null",
            "account": self.settings.account,
            "qos": self.settings.qos,
            "gpus-per-node": str(wish.nodes[0].gpus or ""),
            "reservation": reservation,
        }
        given = [f"--{name}={value}" for name, value in options.items() if value]
        command = ["sbatch", "--parsable", "--exclusive", "--no-requeue", *given, str(SCRIPT), as_json(spec)]
        # Jobs get the environment of sbatch: the pod's own is none of theirs.
        environment = {name: os.environ[name] for name in ("PATH", "SLURM_CONF") if name in os.environ}
        return self.runner(command, timeout=self.timeout, env=environment)

    def cancel(self, numbers: Sequence[int]) -> Result:
        """End tests now."""
        return self._do("scancel", *map(str, numbers))

    def reserve(self, name: str, node: str, comment: str) -> Result:
        """Keep a node for the tests alone, for ever. MAINT: nodes of other reservations too."""
        what = [f"reservationname={name}", f"nodes={node}", "users=slurm", "starttime=now", "duration=UNLIMITED"]
        return self._do("scontrol", "create", "reservation", *what, "flags=MAINT,IGNORE_JOBS", f"comment={comment}")


def _job(job: Mapping[str, Any]) -> TestJob | Ended | None:
    """A test; None for what is no test, or was stopped."""
    match = _NAME.fullmatch(str(job.get("name", "")))
    states = {state.upper() for state in words_of(job.get("job_state"), ",")}
    number = job.get("job_id")
    if match is None or not isinstance(number, int) or states & _STOPPED:
        return None
    test, nodes = match["test"], tuple(match["nodes"].split(","))
    if ended := states & _ENDED:
        began = number_of(job.get("start_time"))
        if not began:
            return None
        return Ended(
            number=number,
            test=test,
            nodes=nodes,
            began=int(began),
            state=min(ended),
            comment=text_of(job.get("comment")),
        )
    return TestJob(
        number=number,
        test=test,
        nodes=nodes,
        running="PENDING" not in states,
        submitted_at=number_of(job.get("submit_time")) or 0.0,
    )
