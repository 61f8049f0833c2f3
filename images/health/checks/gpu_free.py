"""gpu-free: the GPUs that a job is about to get are there, and nobody uses them, nor those that it has given back.

What counts is memory in use. Processes are only named where that is too much: inside a pod `nvidia-smi` sees those of
the pod alone, and what holds a GPU's memory may be elsewhere, or already dead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from images.common.command import Runner
from images.common.health.contract import Check, Node, Result, Thresholds
from images.health.checks.gpu_presence import has_none, says_lost
from images.health.proc import jobs_here
from images.health.verdict import UnknownError, fail, not_checked, ok

NAME: Final = "gpu-free"

USED_MIB: Final = 1024.0
"""Our choice: more than drivers keep for themselves (those before R510 count what they reserve as used, hundreds of MiB
on large GPUs), and little for a job that was left running. Not measured on GPUs."""

_SECONDS: Final = 1.3
_NAMING_SECONDS: Final = 0.5
"""Prologs have two seconds for all: asking for names must not make them miss what was found."""

_MEMORY: Final = ["nvidia-smi", "--query-gpu=pci.bus_id,index,memory.used", "--format=csv,noheader,nounits"]
_PROCESSES: Final = ["nvidia-smi", "--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits"]
_GPU: Final = r"\s*(?:[0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9])\s*,\s*(\d{1,4})\s*,\s*(\d{1,9})\s*"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU of this node, as `nvidia-smi` sees it."""

    place: str
    """On the bus, without the domain: `3b:00.0`."""
    index: int
    """By place on the bus."""
    used_mib: float


def run(node: Node, runner: Runner, thresholds: Thresholds) -> Result:
    """Look at the job's GPUs; without a job at all of them, unless jobs use some."""
    if node.job and not node.job_gpus:
        return ok()
    if node.shares_gpus or (not node.job and node.other_jobs):  # the latter by hand
        return not_checked("others use these GPUs, too" if node.shares_gpus else "jobs run here")
    gpus, lost = _read(runner)
    if len(gpus) < node.gpus:
        why = f": {lost[0].strip()[:120]}" if lost else ""
        return fail("hardware", f"{len(gpus)} of {node.gpus} GPUs are there{why}")
    busy = [gpu for gpu in gpus if gpu.used_mib > thresholds.get(NAME, "used_mib", USED_MIB)]
    if busy and (node.other_jobs or jobs_here(node.root / "proc") - {node.job}):
        busy = [gpu for gpu in busy if gpu.index in _numbers(node, gpus)]
    values = {f'gpu_memory_used_before_job_bytes{{gpu="{gpu.index}"}}': gpu.used_mib * 2**20 for gpu in gpus}
    if not busy:
        return ok(**values)
    figures = ", ".join(f"GPU {gpu.index}: {gpu.used_mib:.0f} MiB" for gpu in busy)
    message = f"{figures} in use before a job{_by_whom(runner)}"
    return fail("user", message, values)


def _read(runner: Runner) -> tuple[list[Gpu], list[str]]:
    """The GPUs that can be used, and what is said of others. Raises UnknownError."""
    answer = runner(_MEMORY, timeout=_SECONDS)
    lost = [line for line in [*answer.stdout.splitlines(), *answer.stderr.splitlines()] if says_lost(line)]
    if has_none(answer):
        return [], lost
    if not answer.ok and not lost:
        raise UnknownError(answer.message)
    gpus = []
    for line in answer.stdout.splitlines():
        match = re.fullmatch(_GPU, line)
        if match is not None:
            gpus.append(Gpu(place=match[1].lower(), index=int(match[2]), used_mib=float(match[3])))
        elif not says_lost(line):
            raise UnknownError(f"nvidia-smi said {line[:80]!r}")
    if not gpus and not lost:
        raise UnknownError("nvidia-smi knows no GPU")
    return gpus, lost


def _numbers(node: Node, gpus: list[Gpu]) -> tuple[int, ...]:
    """The job's GPUs in `nvidia-smi`'s numbers, where jobs share the node.

    Slurm's numbers go by the device files. Where these are in another order, nobody is accused.
    """
    minors = {}
    for path in (node.root / "proc/driver/nvidia/gpus").glob("*/information"):
        text = path.read_text(encoding="utf-8", errors="replace")
        minor = re.search(r"(?m)^Device Minor:\s*(\d{1,9})$", text)
        if minor:
            minors[path.parent.name.lower().partition(":")[2]] = int(minor[1])
    if not node.job or [minors.get(gpu.place) for gpu in gpus] != list(range(len(gpus))):
        raise UnknownError("other jobs use GPUs here, and which are free cannot be told")
    return node.job_gpus


def _by_whom(runner: Runner) -> str:
    answer = runner(_PROCESSES, timeout=_NAMING_SECONDS)
    lines = [line.strip() for line in answer.stdout.splitlines() if re.match(r"\s*\d+\s*,", line)] if answer.ok else []
    return f", by {'; '.join(lines[:4])} MiB" if lines else ""


CHECK: Final = Check(
    name=NAME,
    summary="all GPUs are there before a job, and nobody uses those that it is about to get, or has given back",
    between_jobs=True,
    run=run,
    hardware="gpu",
    seconds=_SECONDS + _NAMING_SECONDS + 0.1,
)
