"""gpu-free: the GPUs that a job is about to get are there, and nobody uses them, nor those that it has given back.

What counts is memory in use: inside a pod `nvidia-smi` sees the processes of the pod alone, and what holds a GPU's
memory may be elsewhere, or already dead.
"""

from __future__ import annotations

import re
from typing import Final

from images.common.command import Runner
from images.common.health.contract import Check, Node, Result, UnknownError, fail, not_checked, ok
from images.health.checks.gpu_presence import has_none, says_lost
from images.health.proc import jobs_here

NAME: Final = "gpu-free"

USED_MIB: Final = 1024.0
"""Our choice: more than drivers keep for themselves (those before R510 count what they reserve as used, hundreds of MiB
on large GPUs), and little for a job that was left running. Not measured on GPUs."""

_SECONDS: Final = 1.3

_MEMORY: Final = ["nvidia-smi", "--query-gpu=index,memory.used", "--format=csv,noheader,nounits"]
_GPU: Final = r"\s*(\d{1,4})\s*,\s*(\d{1,9})\s*"


def run(node: Node, runner: Runner) -> Result:
    """Look at all GPUs, unless others use some."""
    if node.job and not node.job_gpus:
        return ok()
    if node.shares_gpus:
        return not_checked("others use these GPUs, too")
    used, lost = _read(runner)
    if len(used) < node.gpus:
        why = f": {lost[0].strip()[:120]}" if lost else ""
        return fail("hardware", f"{len(used)} of {node.gpus} GPUs are there{why}")
    busy = [f"GPU {index}: {mib} MiB" for index, mib in used if mib > node.limit(NAME, "used_mib", USED_MIB)]
    if not busy:
        return ok()
    # Slurm numbers GPUs by their device files, nvidia-smi by their place on the bus: whose these are cannot be told.
    if node.other_jobs or jobs_here(node.root / "proc") - {node.job}:
        return not_checked("other jobs use GPUs here, and which are free cannot be told")
    return fail("user", f"{', '.join(busy)} in use before a job")


def _read(runner: Runner) -> tuple[list[tuple[int, int]], list[str]]:
    """Index and memory in use of the GPUs that can be used, and what is said of others. Raises UnknownError."""
    answer = runner(_MEMORY, timeout=_SECONDS)
    lost = [line for line in [*answer.stdout.splitlines(), *answer.stderr.splitlines()] if says_lost(line)]
    if has_none(answer):
        return [], lost
    if not answer.ok and not lost:
        raise UnknownError(answer.message)
    used = []
    for line in answer.stdout.splitlines():
        match = re.fullmatch(_GPU, line)
        if match is not None:
            used.append((int(match[1]), int(match[2])))
        elif not says_lost(line):
            raise UnknownError(f"nvidia-smi said {line[:80]!r}")
    if not used and not lost:
        raise UnknownError("nvidia-smi knows no GPU")
    return used, lost


CHECK: Final = Check(
    name=NAME,
    between_jobs=True,
    run=run,
    hardware="gpu",
    seconds=_SECONDS + 0.6,
)
