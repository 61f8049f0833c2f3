"""health-prolog: Slurm's `Prolog`, on each node of a job before its first step.

It makes the job's temporary directory, shows exporters which GPUs the job has, and looks quickly at what would hurt the
job. Where the machine is broken, or another job's remains hold its GPUs, it reports that at once, and waits for the
watcher to drain the node; then it refuses, and Slurm starts the job elsewhere. Where the watcher does not drain it (it
counts how many are drained, and sees what many nodes have at once) the job starts: a prolog that refuses has its node
drained by Slurm itself, whatever the limit. Nothing else refuses a job: not a check that hangs or crashes, nor this
program itself. What may be wrong on all nodes at once (fault class `node`: a file system, a server) is not waited for.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.common import job_directory
from images.common.log import Log, open_pod_log
from images.common.wait import Clock
from images.health.around_job import AroundJob
from images.health.contract import Result
from images.health.local import prepare_environment, with_job
from images.health.report import Report, encode, note_of
from images.health.slurm import ASK_SECONDS, Record, Slurm, SlurmError

REFUSED: Final = 1
"""Exit code on which Slurm drains the node and requeues the job (slurm.conf(5), Prolog)."""

WAIT_SECONDS: Final = 8.0
"""For the watcher's answer: it looks every 2 s, where thousands of nodes make a look long at most every 10 s. slurmctld
takes a batch job for lost whose node says nothing for `BatchStartTimeout`, 10 s."""
LOOK_SECONDS: Final = 0.5

CELLS: Final = Path("/run/slurmstack/cells")
"""Where the jobs are that have a view of the jail of their own (images/worker/cells.py)."""

_REFUSING: Final = ("hardware", "user")


@dataclass(kw_only=True)
class Prolog(AroundJob):
    """Before one job."""

    clock: Clock = field(default_factory=Clock)
    now: Callable[[], float] = time.time
    cells: Path = CELLS

    def run(self) -> int:
        """Returns the exit code."""
        node = with_job(self.local.node, self.environment)
        if node.job and node.job_uid is not None:
            self._make_directory(node.job, node.job_uid)
            self._show_gpus(node.job, node.job_uid, node.job_gpus)
        failed = self.look(node, "prolog")
        counting = failed.keys() - self.local.report_only
        refusing = {name: failed[name] for name in counting if failed[name].fault in _REFUSING}
        return REFUSED if refusing and self._is_drained_for(refusing) else 0

    def _make_directory(self, job: str, uid: int) -> None:
        gid = self.environment.get("SLURM_JOB_GID", "")
        # `sbcast` may have been here before the first step, and wrote into the cell's /tmp, which is this directory.
        make = job_directory.of if (self.cells / job).is_dir() else job_directory.make
        try:
            make(job, uid, int(gid) if gid.isdigit() else -1, self.jobs)
        except (OSError, ValueError) as error:
            self.log(f"job {job} gets no temporary directory of its own: {error}")

    def _show_gpus(self, job: str, uid: int, gpus: Sequence[int]) -> None:
        try:
            self.gpu_jobs.begin(job, uid, gpus)
        except (OSError, ValueError) as error:
            self.log(f"job {job}: nobody is told which GPUs it has: {error}")

    def _is_drained_for(self, refusing: Mapping[str, Result]) -> bool:
        """Report what was found, and whether the node is then drained, by whomever.

        The report has nothing else in it: what was found before may not look as if it had been found now.
        """
        slurm, name = Slurm(runner=self.runner, timeout=ASK_SECONDS), self.local.node.name
        starts = f"job {self.environment.get('SLURM_JOB_ID', '?')} starts all the same"

        def record() -> Record:
            found = slurm.node(name)
            if found is None:
                raise SlurmError("there is no record of this node")
            return found

        try:
            before = record()
            if before.is_drained:
                return True
            report = Report(at=int(self.now()), results=refusing, note=note_of(before.comment))
            told = slurm.update(name, comment=encode(report))
            if not told.ok:
                self.log(f"{starts}, as nobody can be told: {told.message}")
                return False
            deadline = self.clock.now() + WAIT_SECONDS
            while self.clock.now() < deadline:
                self.clock.sleep(LOOK_SECONDS)
                if record().is_drained:
                    return True
        except SlurmError as error:
            self.log(f"{starts}, as nobody can be asked: {error}")
            return False
        self.log(f"{starts}: the watcher has not drained the node in {WAIT_SECONDS:g} s")
        return False


def main() -> int:
    """Entry point. Whatever goes wrong in here must not keep jobs from starting on every node of a cluster."""
    log = Log("health-prolog", sys.stderr)
    try:
        prepare_environment()
        log = Log("health-prolog", open_pod_log())
        return Prolog.in_pod(log).run()
    except Exception as error:  # noqa: BLE001
        log.failure(f"gave up, the job starts all the same: {type(error).__name__}: {error}")
        return 0
