"""seff: how much a job used of what it asked for, as Slurm's contributed program of this name says it.

That one is in no package of Debian's. Where this one differs: memory is always said for a node, as sacct does not say
whether it was asked for CPUs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

USAGE: Final = """\
Usage: seff [Options] <Jobid>
       Options:
       -h    Help menu
       -v    Version"""

FIELDS: Final = (
    "JobID", "JobIDRaw", "Cluster", "User", "Group", "State", "ExitCode", "NNodes", "AllocCPUS", "AllocTRES",
    "ElapsedRaw", "TotalCPU", "TRESUsageInTot", "TRESUsageInMax", "TRESUsageInAve",
)  # fmt: skip
_UNITS: Final = "KMGTPE"
_JOB: Final = re.compile(r"\d+(_\d+|\+\d+)?")

_RUNNING: Final = (
    "WARNING: Efficiency statistics can only be obtained after the job has ended as seff tool is based on the "
    "accounting database data."
)


class SeffError(Exception):
    """What is printed in place of figures."""


def rows_of(job: str) -> list[dict[str, str]]:
    """The job and its steps, as sacct has them. Raises SeffError."""
    command = ["sacct", "--jobs", job, "--noheader", "--parsable2", "--noconvert", f"--format={','.join(FIELDS)}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SeffError(f"cannot start sacct: {error.strerror}") from error
    if done.returncode:
        raise SeffError(done.stderr.strip() or f"sacct ended with {done.returncode}")
    lines = (line.split("|") for line in done.stdout.splitlines())
    rows = [dict(zip(FIELDS, values, strict=True)) for values in lines if len(values) == len(FIELDS)]
    if not rows:
        raise SeffError("Job not found.")
    # Of an array, or of a heterogeneous job, it is the first, as with Slurm's own program.
    number = rows[0]["JobIDRaw"]
    return [row for row in rows if row["JobIDRaw"].partition(".")[0] == number]


def report(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The lines. `rows`: the job, and then its steps."""
    job, *steps = rows
    state = job["State"].partition(" ")[0]
    cpus, nodes = max(_number(job["AllocCPUS"]), 1), max(_number(job["NNodes"]), 1)
    lines = [f"Job ID: {job['JobIDRaw']}"]
    lines += [f"Array Job ID: {job['JobID']}"] if "_" in job["JobID"] else []
    lines += [f"Cluster: {job['Cluster']}", f"User/Group: {job['User']}/{job['Group']}"]
    ended = state not in {"PENDING", "RUNNING"}
    lines.append(f"State: {state}" + (f" (exit code {job['ExitCode'].partition(':')[0]})" if ended else ""))
    lines += [f"Cores: {cpus}"] if cpus == 1 else [f"Nodes: {nodes}", f"Cores per node: {cpus // nodes}"]
    if state == "PENDING":
        return [*lines, "Efficiency not available for jobs in the PENDING state."]
    elapsed = _number(job["ElapsedRaw"])
    used = int(sum(_seconds(step["TotalCPU"]) for step in steps) + 0.5)
    given = _size(_tres(job["AllocTRES"]).get("mem", "0"))
    memory, uneven = _memory(steps)
    lines += [
        f"CPU Utilized: {_clock(used)}",
        f"CPU Efficiency: {_percent(used, elapsed * cpus)} of {_clock(elapsed * cpus)} core-walltime",
        f"Job Wall-clock time: {_clock(elapsed)}",
        f"Memory Utilized: {_amount(memory)}",
        f"Memory Efficiency: {_percent(memory, given)} of {_amount(given)} ({_amount(given / nodes)}/node)",
        *uneven,
    ]
    return [*lines, _RUNNING] if state == "RUNNING" else lines


def _memory(steps: Sequence[Mapping[str, str]]) -> tuple[float, list[str]]:
    """Bytes of the step that had most, as the sum of its tasks' peaks; and how unlike the tasks were."""
    sizes = [_size(_tres(step["TRESUsageInTot"]).get("mem", "0")) for step in steps]
    if not any(sizes):
        return 0, []
    step = steps[sizes.index(max(sizes))]
    most, average = (_size(_tres(step[f"TRESUsageIn{which}"]).get("mem", "0")) for which in ("Max", "Ave"))
    if not most > average > 0:
        return max(sizes), []
    differs = f"differs by {100 * most / average:.2f}% from the average task max memory consumption"
    return max(sizes), [f"The task which had the largest memory consumption {differs}"]


def _tres(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _size(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTPE]?)", text)
    return float(match[1]) * 1024 ** (_UNITS.find(match[2]) + 1 if match[2] else 0) if match else 0


def _seconds(text: str) -> float:
    """Of `[DAYS-][HOURS:]MINUTES:SECONDS[.FRACTION]`; 0 of what is no time, as Slurm's `INVALID`."""
    if text.isalpha():
        return 0.0
    days, _, rest = text.rpartition("-")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = 60 * seconds + float(part or 0)
    return seconds + 86400 * _number(days)


def _clock(seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-" if days else "") + f"{hours:02}:{minutes:02}:{rest:02}"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole if whole else 0:.2f}%"


def _amount(size: float) -> str:
    """`1.50 GB`, by the units of 1024 that Slurm's own program has; `0.00 MB` of nothing."""
    size /= 1024
    unit = 0 if size else 1
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.2f} {_UNITS[unit]}B"


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["-v"]:
        print("seff of slurmstack, as Slurm's 2.1")
        return 0
    if len(given) != 1 or not _JOB.fullmatch(given[0]):
        print(USAGE, file=sys.stdout if given == ["-h"] else sys.stderr)
        return 0 if given == ["-h"] else 1
    os.environ.pop("SACCT_FORMAT", None)
    try:
        print("\n".join(report(rows_of(given[0]))))
    except SeffError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
