"""health-gpus prolog|epilog: what is done around each job where the node has GPUs; native/around.c starts it.

The prolog shows exporters which GPUs the job has, and looks whether these are there and free. Where they are not, it
reports that at once, and waits for the watcher to drain the node; then it refuses, and Slurm starts the job elsewhere.
Where the watcher does not drain it (it counts how many are drained, and sees what many nodes have at once) the job
starts: a prolog that refuses has its node drained by Slurm itself, whatever the limit. Nothing else refuses a job: not
a check that crashes or cannot tell, nor this program itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Final

from images.common.command import Runner, run
from images.common.gpu_jobs import GpuJobs
from images.common.health.contract import Check, Node, Result, Status
from images.common.health.report import Report, encode, line_of, note_of
from images.common.health.slurm import ASK_SECONDS, Record, Slurm, SlurmError
from images.common.log import Log, open_pod_log
from images.common.wait import Clock
from images.health import state
from images.health.checks import gpu_free
from images.health.local import Local, find_local, pod_environment, prepare_environment, with_jobs
from images.health.runner import run_checks

REFUSED: Final = 1
"""Exit code on which Slurm drains the node and requeues the job (slurm.conf(5), Prolog)."""

WAIT_SECONDS: Final = 8.0
"""For the watcher's answer: it looks every 2 s, where thousands of nodes make a look long at most every 10 s. slurmctld
takes a batch job for lost whose node says nothing for `BatchStartTimeout`, 10 s."""
LOOK_SECONDS: Final = 0.5


def refuses(
    local: Local, node: Node, log: Callable[[str], None], *, check: Check = gpu_free.CHECK, runner: Runner = run,
    clock: Clock | None = None,
) -> bool:  # fmt: skip
    """Whether the job of this node is to start elsewhere."""
    if check.name in local.off:
        return False
    found = run_checks([check], node)[check.name]
    if found.status is not Status.OK:
        log(f"before job {node.job}: {line_of(check.name, found)}")
    if found.status is Status.FAIL or (found.status is Status.OK and _was_not_well(check.name, node)):
        # Else the next report, while other jobs run here, would have what was found before.
        state.remember(node, state.PROLOG, {"found": {check.name: vars(found)}, "at": time.time()})
    if found.status is not Status.FAIL or check.name in local.report_only:
        return False
    try:
        if _is_drained_for(check.name, found, node.name, Slurm(runner=runner, timeout=ASK_SECONDS), clock or Clock()):
            return True
        why = f"the watcher has not drained the node in {WAIT_SECONDS:g} s"
    except SlurmError as error:
        why = f"slurmctld: {error}"
    log(f"job {node.job} starts all the same: {why}")
    return False


def _was_not_well(check: str, node: Node) -> bool:
    """Whether an older look than that before a job with GPUs found that something is not well."""
    last, prolog = state.recall(node, state.LAST).get("kept", {}), state.recall(node, state.PROLOG).get("found", {})
    return bool(node.job_gpus) and any(of[check]["status"] != Status.OK for of in (last, prolog) if check in of)


def _is_drained_for(check: str, found: Result, name: str, slurm: Slurm, clock: Clock) -> bool:
    """Report what was found, and whether the node is then drained, by whomever. Raises SlurmError.

    The report has nothing else in it: what was found before may not look as if it had been found now.
    """

    def record() -> Record:
        found = slurm.node(name)
        if found is None:
            raise SlurmError("there is no record of this node")
        return found

    before = record()
    if before.is_drained:
        return True
    report = Report(at=int(time.time()), results={check: found}, note=note_of(before.comment))
    updated = slurm.update(name, comment=encode(report))
    if not updated.ok:
        raise SlurmError(updated.message)
    deadline = clock.now() + WAIT_SECONDS
    while clock.now() < deadline:
        clock.sleep(LOOK_SECONDS)
        if record().is_drained:
            return True
    return False


def main() -> int:
    """Entry point. Whatever goes wrong in here must not keep jobs from starting on every node of a cluster."""
    program = "health-prolog" if sys.argv[1:] == ["prolog"] else "health-epilog"
    log = Log(program, sys.stderr)
    try:
        prepare_environment()
        log = Log(program, open_pod_log())
        if program == "health-epilog":
            GpuJobs().end(os.environ.get("SLURM_JOB_ID", ""))
            return 0
        local = find_local(pod_environment())
        node = with_jobs(local.node, os.environ)
        if refuses(local, node, log):
            return REFUSED
        GpuJobs().begin(node.job, node.job_gpus)
    except Exception as error:  # noqa: BLE001
        log.failure(f"gave up, and the job is not kept waiting: {type(error).__name__}: {error}")
    return 0
