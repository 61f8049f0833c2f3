"""leave: the end of a compute node's life, as the pod's preStop hook.

Drains the node, waits for its jobs, and deletes its record. It never ends a job: how long it may wait is the pod's
termination grace period, and whoever shortens that decides about the jobs. What an administrator has drained stays on
record with its reason, and so does a node whose record jobs need (`WANTED_NODES`).

On a preemptible machine the pod's end is the notice that the machine will be taken, and there may be seconds left: its
batch jobs go back to the queue at once, so that they start elsewhere and are not lost with the machine. They get
SIGTERM, and KillWait for their last files. Jobs that cannot start again by themselves run on.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from enum import Enum
from typing import Final

from images.common.command import TIMED_OUT
from images.common.log import open_pod_log
from images.common.process import program
from images.common.slurm_node import ControllerUnreachableError, Node, is_ours
from images.common.slurm_records import NodeRecord
from images.common.steps import local_steps
from images.common.wait import Clock, Reminder
from images.worker import scratch

FAST_POLL_SECONDS: Final = 0.2
SLOW_POLL_SECONDS: Final = 2.0
FAST_POLLS: Final = 25
"""The first five seconds are polled fast: idle nodes and short jobs; then jobs may take days."""

PATIENCE_SECONDS: Final = 30.0
"""How long slurmctld may be silent before a node without job steps leaves on its own.

A controller that is being replaced at the same time is back in 4 s; a node that did not wait would leave a record
that looks idle and takes jobs.
"""

COMMAND_TIMEOUT_SECONDS: Final = 5.0


AT_ONCE: Final = 20
"""Jobs that are put back by one command, which asks slurmctld for one after the other."""


class Ending(Enum):
    """How leaving ended."""

    DELETED = "the node record is deleted"
    KEPT = "the node record stays: the drain is not ours"
    WANTED = "the node record stays: a pending job asks for this node by name, or a completing one had it"
    REFUSED = "the node record stays: Slurm refused to delete it"
    NO_RECORD = "there is no node record"
    ALONE = "slurmctld has been silent and no job step runs here"
    ENDED_BY_SLURM = "Slurm has powered it down"


class Leaving:
    """Takes one node out of the cluster."""

    def __init__(
        self,
        node: Node,
        log: Callable[[str], None],
        *,
        steps: Callable[[], int] = local_steps,
        clock: Clock | None = None,
        preemptible: bool = False,
    ) -> None:
        self._preemptible = preemptible
        self._asked: set[str] = set()
        """Jobs that were to go back to the queue."""
        self._node = node
        self._log = log
        self._steps = steps
        self._clock = clock or Clock()
        self._reminder = Reminder(log, self._clock)
        self._polls = 0
        self._silent_since: float | None = None

    def run(self) -> Ending:
        """Drain, wait, delete."""
        while True:
            try:
                ending = self._try_to_end()
                self._silent_since = None
            except ControllerUnreachableError as error:
                if self._steps() == 0 and self._is_silent_for_long():
                    return Ending.ALONE
                steps = self._steps()
                what = f"the {steps} job steps of this node; slurmctld" if steps else "slurmctld, which"
                self._reminder.waiting(f"{what} does not answer: {error}")
                ending = None
            if ending is not None:
                return ending
            self._polls += 1
            self._clock.sleep(FAST_POLL_SECONDS if self._polls <= FAST_POLLS else SLOW_POLL_SECONDS)

    def _is_silent_for_long(self) -> bool:
        now = self._clock.now()
        self._silent_since = now if self._silent_since is None else self._silent_since
        return now - self._silent_since >= PATIENCE_SECONDS

    def _try_to_end(self) -> Ending | None:
        """One round; None: a job is still there.

        The drain is looked at in every round: an administrator may drain the node, or resume it, while we wait.
        """
        record = self._node.record()
        if record is None:
            return Ending.NO_RECORD
        return self._leave_elastic_pool(record) if record.is_cloud else self._leave_pool(record)

    def _leave_pool(self, record: NodeRecord) -> Ending | None:
        if not record.is_drained:
            result = self._node.drain()
            self._log(f"draining node {self._node.name}" if result.ok else f"cannot drain the node: {result.message}")
            again = self._node.record()
            if again is None:
                return Ending.NO_RECORD
            record = again
        if self._node.has_jobs(record):
            self._reminder.waiting(f"the jobs on node {self._node.name} to end")
            return None
        if not record.is_drained:
            return None
        if not is_ours(record):
            self._log(f"the node was drained by somebody else: {record.reason or 'no reason given'}")
            return Ending.KEPT
        return self._delete()

    def _leave_elastic_pool(self, record: NodeRecord) -> Ending | None:
        """The record stays: Slurm may start the node again. Where it was not Slurm that ended it, Slurm is told."""
        if record.is_off:
            return Ending.ENDED_BY_SLURM
        if "POWER_DOWN" not in record.states:
            if record.is_drained and not is_ours(record):
                return self._leave_drained(record)
            result = self._node.power_down()
            if result.code == TIMED_OUT:  # asked again in the next round; on notice jobs cannot wait for that
                self._reminder.waiting("slurmctld, to power the node down")
            elif not result.ok:  # no pool of the stack is elastic any more, and Slurm's power saving is off
                return self._leave_pool(record)
            else:
                self._log(f"powering down node {self._node.name}")
        if record.is_coming:
            # Made for a job that was cancelled, and another one has got the node: nobody takes its machine. Where
            # somebody does, what this job has done since the notice is lost.
            self._preemptible = False
        self._give_jobs_back()
        if self._node.has_jobs(record):
            self._reminder.waiting(f"the jobs on node {self._node.name} to end")
        return None

    def _give_jobs_back(self) -> None:
        """On notice; each job once."""
        if not self._preemptible:
            return
        jobs = frozenset(sorted(self._node.running_jobs() - self._asked)[:AT_ONCE])
        if not jobs:
            return
        done = self._node.requeue(jobs)
        if done.code == TIMED_OUT:  # of some the question may not have come to slurmctld: all are asked for again
            self._reminder.waiting("slurmctld, to put jobs back into the queue")
            return
        self._asked |= jobs
        self._log(f"the machine is taken back, jobs go back to the queue: {', '.join(sorted(jobs))}")
        if not done.ok:
            self._log(f"not all of them: {done.message}")

    def _leave_drained(self, record: NodeRecord) -> Ending | None:
        """What somebody has drained stays so: Slurm would lift that when it powers the node down."""
        self._give_jobs_back()
        if self._node.has_jobs(record):
            self._reminder.waiting(f"the jobs on node {self._node.name} to end")
            return None
        self._log(f"the node stays drained: {record.reason}")
        return Ending.KEPT

    def _delete(self) -> Ending:
        down = self._node.set_down()
        if not down.ok:
            self._log(f"cannot set the node down: {down.message}")
        if self._node.is_wanted():
            return Ending.WANTED
        deleted = self._node.delete()
        if deleted.ok:
            return Ending.DELETED
        self._log(f"cannot delete the node record: {deleted.message}")
        return Ending.REFUSED


def main() -> None:
    """Entry point."""
    with program("leave", open_pod_log()) as log:
        node = Node(name=socket.gethostname(), timeout=COMMAND_TIMEOUT_SECONDS)
        ending = Leaving(node, log, preemptible=os.environ.get("PREEMPTIBLE") == "yes").run()
        log(f"node {node.name} left: {ending.value}")
        scratch.give_back(os.environ.get("SCRATCH", ""), log)
