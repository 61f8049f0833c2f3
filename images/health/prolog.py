"""health-prolog: Slurm's `Prolog`, on each node of a job before its first step.

It makes the job's temporary directory, and looks quickly at what would hurt the job. Where the machine is broken, or
another job's remains hold its GPUs, it refuses: Slurm then starts the job elsewhere, and the node is drained. Nothing
else refuses a job: not a check that hangs or crashes, nor this program itself. What may be wrong on all nodes at once
(fault class `node`: a file system, a server) is left to the watcher, which knows how many nodes are drained already.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

from images.common.log import Log, open_pod_log
from images.health import job_directory
from images.health.around_job import AroundJob
from images.health.local import prepare_environment, with_job
from images.health.record import NoRecordError, drain, read_record
from images.health.watch.reason import gravity, reason_for

REFUSED: Final = 1
"""Exit code on which Slurm drains the node and requeues the job (slurm.conf(5), Prolog)."""

_REFUSING: Final = ("hardware", "user")


@dataclass(kw_only=True)
class Prolog(AroundJob):
    """Before one job."""

    def run(self) -> int:
        """Returns the exit code."""
        node = with_job(self.local.node, self.environment)
        if node.job and node.job_uid is not None:
            self._make_directory(node.job, node.job_uid)
        failed = self.look(node, "prolog")
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


def main() -> int:
    """Entry point. Whatever goes wrong in here must not keep jobs from starting on every node of a cluster."""
    log = Log("health-prolog", sys.stderr)
    try:
        prepare_environment()
        log = Log("health-prolog", open_pod_log())
        return Prolog.in_pod(log).run()
    except Exception as error:  # noqa: BLE001
        log(f"gave up, the job starts all the same: {type(error).__name__}: {error}")
        return 0


if __name__ == "__main__":
    sys.exit(main())
