"""health-epilog: Slurm's `Epilog`, on each node of a job after its last step.

It removes the job's temporary directory. If the user has no other job on the node, it ends the processes that are left
of the user's and removes the user's files in /tmp and /dev/shm: memory that nobody could free otherwise. Then it looks
whether the node is clean; what it finds is in the node's next report. It always succeeds: Slurm would drain the node.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from images.common import job_directory
from images.common.log import Log, open_pod_log
from images.common.wait import Clock
from images.health import leftovers
from images.health.around_job import AroundJob
from images.health.contract import Node
from images.health.leftovers import Moment
from images.health.local import prepare_environment, with_job
from images.health.proc import Process, jobs_here, sees
from images.health.slurm import Slurm, SlurmError

REMOVAL_SECONDS: Final = 2.0
"""So long the epilog waits for the removal of files; then that goes on by itself."""

ASK_SECONDS: Final = 3.0


_SQUEUE_BYTES: Final = 48 << 20
"""Enough for some 20,000 usual jobs of one user (docs/metrics.md). As many ask at once as jobs end, in slurmd's part of
the node's memory."""


@dataclass(kw_only=True)
class Epilog(AroundJob):
    """After one job."""

    places: tuple[Path, ...] = leftovers.PLACES
    clock: Clock = field(default_factory=Clock)
    kill: Callable[[int, int], None] = os.kill
    sweep: Callable[[int], None] = leftovers.sweep
    moment: Callable[[], Moment] = leftovers.now

    def run(self) -> None:
        """Clean up, then look."""
        before = self.moment()
        node = with_job(self.local.node, self.environment)
        self._hide_gpus(node.job)
        removals: list[Callable[[], int]] = []
        gone = self._retire(node.job)
        there = [*job_directory.left(self.jobs), *job_directory.left(self.spool)]
        others = [path for path in there if path not in gone]
        uid = node.job_uid
        if uid is not None and uid not in leftovers.PROTECTED and self._may_clean(node, uid):
            self._end_processes(node, uid, before)
            self._sweep(node, uid)
            until = self._still_alone(node, uid, before)
            objects = list(leftovers.ipc_objects(uid, until, self._proc))
            removals.append(lambda: leftovers.remove_ipc_objects(uid, objects))
            removals.append(lambda: leftovers.remove_files(uid, until, self.places))
        # Last: another job of its user may go on making files there, which keeps whoever removes them.
        removals += [partial(leftovers.remove_tree, path) for path in gone]
        removals += [partial(leftovers.remove_tree, path, alone=True) for path in others]
        if removals:
            in_background(removals, REMOVAL_SECONDS, lambda text: self.log(f"job {node.job}: {text}"))
        self.look(node, "epilog")

    @property
    def _proc(self) -> Path:
        return self.local.node.root / "proc"

    def _hide_gpus(self, job: str) -> None:
        try:
            self.gpu_jobs.end(job)
        except (OSError, ValueError) as error:
            self.log(f"job {job}: its GPUs stay shown as its own: {error}")

    def _retire(self, job: str) -> list[Path]:
        gone: list[Path] = []
        try:
            if (own := job_directory.retire(job, self.jobs)) is not None:
                gone.append(own)
            gone += job_directory.retire_steps(job, self.spool)
        except (OSError, ValueError) as error:
            self.log(f"cannot remove directories of job {job}: {error}")
        return gone

    def _may_clean(self, node: Node, uid: int) -> bool:
        """Whether something is left of the user's, and the user has no other job here.

        slurmctld is only asked where something is left: most jobs leave nothing, and there may be many of them.
        """
        left = (
            self._may_run(uid)
            or leftovers.has_files(uid, self.places)
            or next(leftovers.ipc_objects(uid, leftovers.EVER, self._proc), None) is not None
        )
        if not left:
            return False
        try:
            return not self._other_jobs(node, uid)
        except SlurmError as error:
            if self._is_empty(node):
                return True
            self.log(f"job {node.job}: what its user has left stays, as slurmctld does not say who is here: {error}")
            return False

    def _may_run(self, uid: int) -> bool:
        """Whether a process of the user's outside of steps is seen, or cannot be seen: a chain of them may be fast."""
        return sees(lambda: bool(leftovers.left_processes(uid, leftovers.EVER, self._proc)), self._proc) is not False

    def _is_empty(self, node: Node) -> bool:
        """Whether nobody has another job here, which a node's record shows whatever users have put into the queue."""
        if jobs_here(self._proc) - {node.job}:
            return False
        with contextlib.suppress(SlurmError):
            record = Slurm(runner=self.runner, timeout=ASK_SECONDS).node(node.name)
            return record is not None and not record.has_jobs
        return False

    def _other_jobs(self, node: Node, uid: int) -> bool:
        """Whether the user has another job here. One that ends just now has, as long as a step of it lives.

        Raises SlurmError.
        """
        slurm = Slurm(runner=self.runner, timeout=ASK_SECONDS)
        lines = slurm.jobs_of(node.name, f"--user={uid}", form="%A %T", most=_SQUEUE_BYTES)
        steps = jobs_here(self._proc)
        for line in lines:
            job, _, state = line.partition(" ")
            if not job.isdigit():
                raise SlurmError(f"squeue said {line[:80]!r}")
            if job != node.job and (state != "COMPLETING" or steps & {job, "?"}):
                return True
        return False

    def _end_processes(self, node: Node, uid: int, before: Moment) -> None:
        left = leftovers.left_processes(uid, before, self._proc)
        if left:
            self.log(f"job {node.job}: ending what it has left: {_names(left)}")
        stuck = leftovers.end_processes(left, self._proc, self.clock, self.kill)
        if stuck:
            self.log(f"job {node.job}: these do not end: {_names(stuck)}")

    def _still_alone(self, node: Node, uid: int, before: Moment) -> Moment:
        """Up to when files were not made by another job: now, unless there is one.

        What has just been ended may have touched its files until then, so that none was old enough.
        """
        now = self.moment()
        try:
            return before if self._other_jobs(node, uid) else now
        except SlurmError:
            return before

    def _sweep(self, node: Node, uid: int) -> None:
        """End what has come since, too, if the user still has no job here: a process may fork faster than we look."""
        if not self._may_run(uid):
            return
        fresh = _names(leftovers.left_processes(uid, leftovers.EVER, self._proc)) or "what forks too fast to be seen"
        try:
            if self._other_jobs(node, uid):
                return
        except SlurmError as error:
            self.log(f"job {node.job}: not ended, as slurmctld does not say who is here: {fresh}: {error}")
            return
        self.log(f"job {node.job}: ending all that its user runs: {fresh}")
        try:
            self.sweep(uid)
        except (OSError, ValueError) as error:
            self.log(f"job {node.job}: cannot end all that its user runs: {error}")


def _names(found: Sequence[Process]) -> str:
    counts = Counter(process.comm for process in found)
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in sorted(counts.items()))


def in_background(removals: Sequence[Callable[[], int]], seconds: float, log: Callable[[str], None]) -> None:
    """Do it in a process of its own, and wait for it for a while only: a million files take their time.

    Its own session, as slurmd ends what is left of an epilog's process group.
    """
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nothing, descriptor)
            removed = sum(removal() for removal in removals)
            if removed:
                log(f"removed {removed} files and directories")
        finally:
            os._exit(0)
    deadline = time.monotonic() + (seconds if math.isfinite(seconds) else 3600)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(child, os.WNOHANG)[0] == 0:
            if time.monotonic() >= deadline:
                log("files are still being removed")
                return
            time.sleep(0.005)


def main() -> int:
    """Entry point."""
    log = Log("health-epilog", sys.stderr)
    try:
        prepare_environment()
        log = Log("health-epilog", open_pod_log())
        Epilog.in_pod(log).run()
    except Exception as error:  # noqa: BLE001  (an epilog that fails drains the node)
        log.failure(f"gave up: {type(error).__name__}: {error}")
    return 0
