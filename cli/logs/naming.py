"""Whether a line names a node or a job: job 1 is not job 11, and a-1 not a-10."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

_JOB = re.compile(
    r"""(?ix)
    (?: (?<! [a-z0-9] ) (?: job | step ) [ _]? (?: id )? \\?["']? [ ]* (?: [:=\#] [ ]* )? | \[ (?= \d+\. ) )
    ( \d+ )                                              # of the job, or of the array that it belongs to
    (?: [_+] (?: ( \d+ ) | \* | \[ [\d,%-]+ \] ) )?      # of the task; all that wait together are 5_*
    (?: \( ( \d+ ) \) )?                                 # of the task as a job: JobId=5_3(7)
    (?! \w )"""
)
"""As slurmctld, slurmd, slurmstepd and our own programs write it: `JobId=5_3(7)`, `StepId=5.0`, `[5.batch]`,
`Launching batch job 5`, `prolog job 5: ...`."""

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})?)?")


def names_job(wanted: Collection[str]) -> Callable[[str], bool]:
    """Whether a text names one of these jobs: numbers, or ARRAY_TASK. An array's number stands for all its tasks."""
    ids = frozenset(wanted)

    def matches(text: str) -> bool:
        return any(not ids.isdisjoint(_ids(*match.groups(""))) for match in _JOB.finditer(text))

    return matches


def job_in(text: str) -> str | None:
    """The first job that a text names, as it has it: `5`, or `5_3` of an array; None: none."""
    match = _JOB.search(text)
    return match and (f"{match[1]}_{match[2]}" if match[2] else match[1])


def _ids(job: str, task: str, as_job: str) -> set[str]:
    return {job, f"{job}_{task}" if task else job, as_job or job}


def names_node(node: str) -> Callable[[str], bool]:
    """Whether a text names a node, also in a list of hosts as Slurm writes it: `NodeList=a-[0-2,5],b-1`."""
    pool, _, number = node.rpartition("-")
    if not number.isdecimal():
        exactly = re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w-])")
        return lambda text: exactly.search(text) is not None
    # What follows may be a domain or the end of a sentence, but no longer name.
    pattern = re.compile(rf"(?<![\w.-]){re.escape(pool)}-(?:(\d+)(?!\w|-[\w\[])|\[([\d,-]+)\](?!\w))")

    def matches(text: str) -> bool:
        return any(_has(match[1] or match[2], int(number)) for match in pattern.finditer(text))

    return matches


def _has(listed: str, number: int) -> bool:
    """Whether `0-2,5` has the number. Users write names of nodes into logs, of thousands of digits too."""
    for part in listed.split(","):
        match = _RANGE.fullmatch(part)
        if match and int(match[1]) <= number <= int(match[2] or match[1]):
            return True
    return False
