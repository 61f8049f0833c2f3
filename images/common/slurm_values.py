"""Values in the text that Slurm's commands print: times, sizes, resources (TRES), GPUs, tasks of a job array.

What is no such value is read as none. One record that somebody has written into must not take all others away.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

MEBIBYTE: Final = 1 << 20

_DURATION: Final = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)")
_UNITS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?(?::(\d+))?")
_IN_MEBIBYTES: Final = ("mem", "bb/")


def seconds(text: str) -> float | None:
    """Of `[DAYS-][HOURS:]MINUTES:SECONDS[.FRACTION]`; None for `UNLIMITED`, `NOT_SET`, `INVALID`."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def moment(text: str) -> float | None:
    """A time in seconds since 1970, which SLURM_TIME_FORMAT=%s gives. None for `N/A`, `Unknown`, and for 0: never."""
    return float(text) if text.isascii() and text.isdecimal() and int(text) else None


def count(text: str) -> int:
    """A number, or the least of a range: 3 of `3`, `3-5` and `3+`; 0 of what is none."""
    match = re.match(r"[0-9]+", text.strip())
    return int(match[0]) if match else 0


def size(text: str, bare: int = 1) -> float | None:
    """Bytes of `1843200`, `512M` or `1.50G`. `bare`: of one, where there is no unit."""
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    return float(match[1]) * (1024 ** _UNITS[match[2]] if match[2] else bare)


def tres(text: str) -> dict[str, str]:
    """`cpu=00:00:05,mem=1843200` by name."""
    return {name: value for name, _, value in (part.partition("=") for part in text.split(",")) if value}


def amounts(text: str) -> dict[str, float]:
    """`cpu=2,mem=1.50G,gres/gpu:h100=1` as numbers, memory in MiB; `1?`, for which Slurm has no unit: inf."""
    return {name: _amount(name, value) for name, value in tres(text).items()}


def _amount(name: str, value: str) -> float:
    in_mebibytes = name.startswith(_IN_MEBIBYTES)
    found = size(value, MEBIBYTE if in_mebibytes else 1)
    if found is None:
        return math.inf
    return found / MEBIBYTE if in_mebibytes else found


def gpus_in(resources: Mapping[str, float]) -> float:
    """GPUs of all types. Slurm counts `gres/gpu:h100` in `gres/gpu` too, where both are recorded."""
    total = resources.get("gres/gpu")
    return sum(n for name, n in resources.items() if name.startswith("gres/gpu:")) if total is None else total


def gpus(gres: str, *, whole: bool = False) -> int:
    """In what a node has (`gpu:h100:8(S:0-1),shard:16`) or a job asks for (`gres/gpu:h100:2,gpu`).

    A part of a GPU (MIG: `gpu:1g.10gb:7`) counts as one, with `whole` as none.
    """
    words = (re.sub(r"^gres[/:]", "", word) for word in re.sub(r"\(.*?\)", "", gres).split(","))
    found = 0
    for word in words:
        kind, *parts = re.split(r"[:=]", word)
        if kind == "gpu" and not (whole and parts and re.match(r"[1-7]g\.", parts[0])):
            found += int(parts[-1]) if parts and parts[-1].isdecimal() else 1
    return found


def task_ids(job: str) -> Iterator[str]:
    """What squeue shows together as `12_[4-10:3,107%8]`, each as scancel takes it: `12_4`, `12_7`, ..."""
    array, together, _ = job.partition("_[")
    if not together:
        yield job
    for tasks in _tasks(job):
        yield from (f"{array}_{task}" for task in tasks)


def task_count(job: str) -> int:
    """How many jobs that is."""
    return sum(map(len, _tasks(job))) if "_[" in job else 1


def _tasks(job: str) -> Iterator[range]:
    tasks = job.partition("_[")[2]
    for first, last, step in _RANGE.findall(tasks.partition("%")[0]):
        yield range(int(first), int(last or first) + 1, int(step or 1))
