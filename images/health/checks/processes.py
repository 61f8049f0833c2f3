"""processes: zombies, processes that never wake up, job steps without a job, and what jobs have left running."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from images.common.command import Runner
from images.common.steps import is_step, user_of
from images.health.contract import Check, Node, Result, Thresholds
from images.health.proc import Process, job_of, sees
from images.health.proc import processes as every_process
from images.health.slurm import Slurm, SlurmError
from images.health.state import held_for
from images.health.verdict import UnknownError, fail, not_checked, ok, or_not_checked, warn, worst

NAME: Final = "processes"

WARN_ZOMBIES: Final = 100.0
FAIL_ZOMBIES: Final = 1000.0
"""A zombie costs a process number, of which a container has a few thousand where the site limits them
(kubelet's `podPidsLimit`)."""

STUCK_SECONDS: Final = 120.0
"""Waiting for a device or a file system without a break: the kernel itself calls such a task hung after 120 s
(`kernel.hung_task_timeout_secs`)."""

STEP_SECONDS: Final = 120.0
"""How long a slurmstepd may have nothing left to look after; then we ask whether its job is still there. Slurm itself
waits longer for processes to die (`UnkillableStepTimeout`)."""

STRAY_SECONDS: Final = 60.0
"""How long a user's processes may outlive the last step."""

FIRST_USER: Final = 1000
"""Numbers below are the system's own (Debian policy, 9.2.2)."""

_SQUEUE_SECONDS: Final = 3.0
_SQUEUE_BYTES: Final = 128 << 20
"""Of all users' jobs, some 50,000 usual ones (docs/metrics.md). With more it is not checked."""
_UNSEEN: Final = "stray ?"
_OWN: Final = "health"
"""Beginning of our programs' names, which are root's. One of ours that is stuck is reported by the check that it was:
not checked."""


def read_processes(proc: Path) -> list[Process]:
    """All of this pod but kernel threads. Raises UnknownError.

    Only `stat`: to read the command line of a process that hangs can hang.
    """
    odd: list[int] = []
    try:
        found = sorted(every_process(proc, odd=odd), key=lambda one: one.pid)
    except OSError as error:
        raise UnknownError(f"{proc}: {error.strerror}") from None
    ours = [one for one in found if not one.is_kernel_thread]
    if odd or not ours:
        raise UnknownError(f"{len(odd)} of {len(odd) + len(found)} processes in {proc} are not as expected")
    return ours


@or_not_checked
def run(node: Node, runner: Runner, thresholds: Thresholds, *, clock: Callable[[], float] = time.monotonic) -> Result:
    """Look at all of them."""
    proc = node.root / "proc"
    processes = read_processes(proc)
    busy = node.other_jobs or bool(node.job)
    stuck = {f"stuck {one.key} {one.ticks}": one for one in processes if one.state == "D" and not _is_own(one, proc)}
    steps = {f"step {one.key}": one for one in _steps_without_work(processes, proc, busy=busy)}
    strays = {} if busy else _strays(proc, processes)
    held = held_for(node, NAME, [*stuck, *steps, *strays], clock)
    limits = {
        "stuck": thresholds.get(NAME, "stuck_seconds", STUCK_SECONDS),
        "step": thresholds.get(NAME, "step_seconds", STEP_SECONDS),
        "stray": thresholds.get(NAME, "stray_seconds", STRAY_SECONDS),
    }
    lasting = {key: seconds for key, seconds in held.items() if seconds >= limits[key.partition(" ")[0]]}
    return worst(
        [
            _judge_zombies([one for one in processes if one.has_ended], processes, thresholds, busy=busy),
            _judge_stuck([(one, lasting[key]) for key, one in stuck.items() if key in lasting], busy=busy),
            _judge_steps(node, runner, proc, [(one, lasting[key]) for key, one in steps.items() if key in lasting]),
            _judge_strays({key: found for key, found in strays.items() if key in lasting}),
        ]
    )


def _is_own(process: Process, proc: Path) -> bool:
    return process.comm.startswith(_OWN) and user_of(process.pid, proc) == 0


def _steps_without_work(processes: Iterable[Process], proc: Path, *, busy: bool) -> list[Process]:
    """Each slurmstepd that has no process to look after; on a node without jobs, each."""
    parents = {one.parent for one in processes if not one.has_ended}
    steps = [one for one in processes if one.state != "D" and is_step(one.pid, proc)]
    return [one for one in steps if not busy or one.pid not in parents]


def _strays(proc: Path, processes: Iterable[Process]) -> dict[str, list[Process]]:
    """Users' processes where no step runs that could have started them, by user: one that forks is ever another.

    `_UNSEEN` for what is never seen, since each process of it lives for less than a look takes.
    """
    if any(is_step(one.pid, proc) for one in processes):
        return {}
    strays: dict[str, list[Process]] = {}

    def look() -> bool:
        for one in every_process(proc):
            if not one.has_ended and (user := user_of(one.pid, proc) or 0) >= FIRST_USER:
                strays.setdefault(f"stray {user}", []).append(one)
        return bool(strays)

    if sees(look, proc) is None:
        return {_UNSEEN: []}
    return {key: sorted(found, key=lambda one: one.pid) for key, found in strays.items()}


def _judge_zombies(
    zombies: list[Process], processes: Iterable[Process], thresholds: Thresholds, *, busy: bool
) -> Result:
    values = {"processes_zombies": float(len(zombies))}
    warning = thresholds.get(NAME, "warn_zombies", WARN_ZOMBIES)
    failure = thresholds.get(NAME, "fail_zombies", FAIL_ZOMBIES)
    if len(zombies) < min(warning, failure):
        return ok(**values)
    parent, count = Counter(one.parent for one in zombies).most_common(1)[0]
    name = next((one.comm for one in processes if one.pid == parent), "?")
    message = f"{len(zombies)} zombies, {failure:g} allowed; {count} of them children of {name} ({parent})"
    return (fail if len(zombies) >= failure and not busy else warn)("node", message, values)


def _judge_stuck(stuck: list[tuple[Process, float]], *, busy: bool) -> Result:
    """While a job runs it may be the job's own, which waits for a slow disk: told, and no more."""
    values = {"processes_stuck": float(len(stuck))}
    if not stuck:
        return ok(**values)
    return (warn if busy else fail)("node", f"stuck in the kernel: {_list(stuck)}", values)


def _judge_steps(node: Node, runner: Runner, proc: Path, steps: list[tuple[Process, float]]) -> Result:
    """Steps that are suspect: Slurm is asked only if there are any."""
    jobs = {one.pid: job_of(one.pid, proc) for one, _ in steps}
    suspect = [(one, seconds) for one, seconds in steps if jobs[one.pid].isdigit()]
    if not suspect:
        return ok(processes_steps_without_job=0.0)
    try:
        known = set(Slurm(runner=runner, timeout=_SQUEUE_SECONDS).jobs_of(node.name, most=_SQUEUE_BYTES))
        why = "" if all(job.isdigit() for job in known) else "squeue said something that is no job's number"
    except SlurmError as error:
        why = str(error)[:100]
    if why:
        return not_checked(f"{len(suspect)} steps seem to have no job: {why}")
    lost = [(one, seconds) for one, seconds in suspect if jobs[one.pid] not in known]
    values = {"processes_steps_without_job": float(len(lost))}
    if not lost:
        return ok(**values)
    numbers = ", ".join(dict.fromkeys(jobs[one.pid] for one, _ in lost))
    message = f"steps of jobs that have ended ({numbers}): {_list(lost)}"
    return fail("node", message, values)


def _judge_strays(lasting: dict[str, list[Process]]) -> Result:
    strays = [one for found in lasting.values() for one in found]
    values = {"processes_stray": float(len(strays))}
    if _UNSEEN in lasting:
        return warn("user", "something forks so fast that it is not seen: a process of a user without a job?", values)
    if not strays:
        return ok(**values)
    names = ", ".join(f"{one.comm} ({one.pid})" for one in strays[:3])
    message = f"{len(strays)} processes of users without a job: {names}{' ...' if len(strays) > 3 else ''}"
    return warn("user", message, values)


def _list(found: list[tuple[Process, float]]) -> str:
    first = ", ".join(f"{one.comm} ({one.pid}) for {seconds:.0f} s" for one, seconds in found[:3])
    return first + (f" and {len(found) - 3} more" if len(found) > 3 else "")


CHECK: Final = Check(
    name=NAME,
    summary="zombies, processes stuck in the kernel, job steps without a job, what jobs left running",
    run=run,
)
