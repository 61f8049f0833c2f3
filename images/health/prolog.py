"""health-prolog: Slurm's `Prolog`, on each node of a job before its first step.

It makes the job's temporary directory, and looks quickly at what would hurt the job. Where the machine is broken, or
another job's remains hold its GPUs, it refuses: Slurm then starts the job elsewhere, and the node is drained. Nothing
else refuses a job: not a check that hangs or crashes, nor this program itself. What may be wrong on all nodes at once
(fault class `node`: a file system, a server) is left to the watcher, which knows how many nodes are drained already.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.command import Runner
from images.common.log import Log, open_pod_log
from images.health import job_directory
from images.health.contract import Result, Status
from images.health.local import Local, find_local, pod_environment, prepare_environment, with_job
from images.health.record import NoRecordError, drain, read_record
from images.health.registry import Registry, find_checks
from images.health.report import line_of
from images.health.runner import run_checks
from images.health.state import State
from images.health.tools import Tools
from images.health.watch.reason import gravity, reason_for

SECONDS: Final = 2.0
"""For all checks together: users wait for this."""

REFUSED: Final = 1
"""Exit code on which Slurm drains the node and requeues the job (slurm.conf(5), Prolog)."""

_REFUSING: Final = ("hardware", "user")


@dataclass(kw_only=True)
class Prolog:
    """Before one job."""

    local: Local
    registry: Registry
    state: State
    log: Callable[[str], None]
    runner: Runner
    environment: Mapping[str, str]
    jobs: Path = job_directory.JOBS
    seconds: float = SECONDS

    def run(self) -> int:
        """Returns the exit code."""
        node = with_job(self.local.node, self.environment)
        if node.job and node.job_uid is not None:
            self._make_directory(node.job, node.job_uid)
        checks = self.registry.of("prolog", node, self.local.off)
        if not checks:
            return 0
        outcomes = run_checks(checks, node, self.local.thresholds, seconds=self.seconds, shared=False)
        failed = {name: found.result for name, found in outcomes.items() if found.result.status is Status.FAIL}
        for name, found in outcomes.items():
            if found.result.status is not Status.OK:
                self.log(f"before job {node.job}: {line_of(name, found.result)}")
        remember_failures(self.state, failed, self.log)
        counting = failed.keys() - self.local.report_only
        refusing = {name: failed[name] for name in counting if failed[name].fault in _REFUSING}
        if not refusing:
            return 0
        name = max(refusing, key=lambda name: gravity(refusing[name].fault))
        self._drain(reason_for(name, refusing[name]))
        return REFUSED

    def _make_directory(self, job: str, uid: int) -> None:
        gid = self.environment.get("SLURM_JOB_GID", "")
        try:
            job_directory.make(job, uid, int(gid) if gid.isdigit() else -1, self.jobs)
        except (OSError, ValueError) as error:
            self.log(f"job {job} gets no temporary directory of its own: {error}")

    def _drain(self, reason: str) -> None:
        """Drain the node with our reason, before slurmctld does it with `Prolog error`, which nothing would lift.

        A drain that is already there stays as it is.
        """
        try:
            if read_record(self.local.node.name, self.runner).is_drained:
                return
            told = drain(self.local.node.name, reason, self.runner)
            self.log(f"drained: {reason}" if told.ok else f"cannot drain the node: {told.message}")
        except NoRecordError as error:
            self.log(f"cannot ask for the node's record: {error}")


def remember_failures(state: State, failed: Mapping[str, Result], log: Callable[[str], None]) -> None:
    """Have the checks run in the next interval: their results are then in the report, and so is that they are well."""
    if not failed:
        return
    try:
        state.remember_again(state.again() | set(failed))
    except OSError as error:
        log(f"cannot remember: {error}")


def main() -> int:
    """Entry point. Whatever goes wrong in here must not keep jobs from starting on every node of a cluster."""
    log = Log("health-prolog", sys.stderr)
    try:
        prepare_environment()
        log = Log("health-prolog", open_pod_log())
        local = find_local(pod_environment())
        state = State(directory=local.node.state)
        return Prolog(
            local=local,
            registry=find_checks(node=local.node),
            state=state,
            log=log,
            runner=Tools(),
            environment=os.environ,
        ).run()
    except Exception as error:  # noqa: BLE001
        log(f"gave up, the job starts all the same: {type(error).__name__}: {error}")
        return 0


if __name__ == "__main__":
    sys.exit(main())
