"""What is said of one job in plain words."""

from __future__ import annotations

from math import ceil

from images.common.slurm_runs import Run

MIB, GIB = 2**20, 2**30

SETTLED = 300
"""Seconds that a job must have run before it is advised: ten looks at its memory, as Slurm looks by default."""

_SPARE = 2
"""What is proposed, as a multiple of what was seen: between two looks memory may have been higher."""


def amount(size: float) -> str:
    """Bytes for people."""
    return f"{size / GIB:,.2f} GiB" if size >= GIB else f"{size / MIB:,.1f} MiB"


def clock(seconds: float) -> str:
    """Time as Slurm writes it."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{rest:02}"


_NO_LOOK = (
    "its memory was never looked at: it, or a long step of it, was shorter than the time between two looks; "
    "`sbatch --acctg-freq=task=1` looks each second"
)
_NOTHING = (
    "not measured: it was ended before Slurm's first look (every 30 seconds by default), its node was lost, or "
    "JobAcctGatherType is none"
)


def unknown(job: Run) -> str:
    """Why figures of a job are missing; empty if none is."""
    if job.start is None:
        return "it has not run"
    if job.end is None:
        return "still running: what it uses is known when it has ended"
    if not job.seconds:
        return "it ran for less than a second, which is too short to measure"
    if job.memory_used is not None and job.cpu_seconds is not None:
        return ""
    return _NO_LOOK if job.cpu_seconds is not None else _NOTHING


def advice(job: Run) -> list[str]:
    """What to ask for next time. Nothing for short jobs, nor where nothing is wrong."""
    if job.state.startswith("OUT_OF_MEMORY"):
        return [f"it was ended because {amount(job.memory or 0)} of memory were not enough: ask for more"]
    if job.seconds < SETTLED:
        return []
    return [*_idle_cpus(job), *_idle_memory(job)]


def _idle_cpus(job: Run) -> list[str]:
    if job.cpu_seconds is None or job.cpus < 2 or job.cpu_seconds > job.cpus * job.seconds / 2:
        return []
    busy = job.cpu_seconds / job.seconds
    enough = max(ceil(busy), 1)
    asked = f"asked for {job.cpus} CPUs, {busy:.1f} were busy on average"
    return [f"{asked}: {enough} would do, unless it needs more for a part of its time"]


def _idle_memory(job: Run) -> list[str]:
    if job.memory is None or job.memory_used is None:
        return []
    asked = f"asked for {amount(job.memory)} of memory, used {amount(job.memory_used)}"
    unit, letter = (GIB, "G") if job.memory_used * _SPARE > GIB else (100 * MIB, "00M")
    enough = max(ceil(job.memory_used * _SPARE / unit), 1)
    if enough * unit > 0.75 * job.memory:
        return []
    if job.nodes > 1:  # --mem is for each node, and what each of them had is not recorded
        return [f"{asked}, on {job.nodes} nodes together: much less would do"]
    return [f"{asked}: --mem={enough}{letter} would do"]
