"""seff: how much a job used of what it asked for, as Slurm's contributed program of this name says it.

That one is in no package of Debian's. Where this one differs: memory is always said for a node, as sacct does not say
whether it was asked for CPUs, and it is that of all steps that ran at the same time, as `slurmstack efficiency` has it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from images.common.slurm_runs import FIELDS, RecordError, memory_at_once, rows, runs_of, sacct

USAGE: Final = """\
Usage: seff [Options] <Jobid>
       Options:
       -h    Help menu
       -v    Version"""

_FIELDS: Final = ("Cluster", "Group", "ExitCode", *FIELDS)
_UNITS: Final = "KMGTPE"
_JOB: Final = re.compile(r"\d+(_\d+|\+\d+)?")

_RUNNING: Final = (
    "WARNING: Efficiency statistics can only be obtained after the job has ended as seff tool is based on the "
    "accounting database data."
)


class SeffError(Exception):
    """What is printed in place of figures."""


def records_of(job: str) -> list[dict[str, str]]:
    """The job and its steps, as sacct has them. Raises SeffError."""
    try:
        done = subprocess.run([*sacct(_FIELDS), f"--jobs={job}"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise SeffError(f"cannot start sacct: {error.strerror}") from error
    if done.returncode:
        raise SeffError(done.stderr.strip() or f"sacct ended with {done.returncode}")
    found = list(rows(done.stdout.removesuffix("\n").split("\n"), _FIELDS))
    if not found:
        raise SeffError("Job not found.")
    # Of an array, or of a heterogeneous job, it is the first, as with Slurm's own program.
    number = found[0]["JobIDRaw"]
    return [row for row in found if row["JobIDRaw"].partition(".")[0] == number]


def report(records: Sequence[Mapping[str, str]]) -> list[str]:
    """The lines. `records`: the job, and then its steps."""
    job = records[0]
    (run,) = runs_of(records)
    state, cpus, nodes = run.state.partition(" ")[0], max(run.cpus, 1), max(run.nodes, 1)
    lines = [f"Job ID: {run.number}"]
    lines += [f"Array Job ID: {run.job}"] if "_" in run.job else []
    lines += [f"Cluster: {job['Cluster']}", f"User/Group: {job['User']}/{job['Group']}"]
    ended = state not in {"PENDING", "RUNNING"}
    lines.append(f"State: {state}" + (f" (exit code {job['ExitCode'].partition(':')[0]})" if ended else ""))
    lines += [f"Cores: {cpus}"] if cpus == 1 else [f"Nodes: {nodes}", f"Cores per node: {cpus // nodes}"]
    if state == "PENDING":
        return [*lines, "Efficiency not available for jobs in the PENDING state."]
    used = int(sum(step.cpu_seconds or 0 for step in run.steps) + 0.5)
    given, memory = run.memory or 0, memory_at_once(run.steps)
    lines += [
        f"CPU Utilized: {_clock(used)}",
        f"CPU Efficiency: {_percent(used, run.seconds * cpus)} of {_clock(run.seconds * cpus)} core-walltime",
        f"Job Wall-clock time: {_clock(run.seconds)}",
        f"Memory Utilized: {_amount(memory)}",
        f"Memory Efficiency: {_percent(memory, given)} of {_amount(given)} ({_amount(given / nodes)}/node)",
    ]
    return [*lines, _RUNNING] if state == "RUNNING" else lines


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
        print("\n".join(report(records_of(given[0]))))
    except (SeffError, RecordError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
