"""Slurm's host lists."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_NUMBERED: Final = re.compile(r"^(?P<prefix>.*?)(?P<number>0|[1-9]\d{0,8})$")


def expand(hosts: str) -> tuple[str, ...]:
    """Names in a host list such as `gpu-[0-3,7],cpu-0`, each once."""
    names: set[str] = set()  # a user's list may name each node thousands of times
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", hosts):
        prefix, _, inside = part.strip(",").partition("[")
        names.update((prefix + number for number in _numbers(inside.rstrip("]"))) if inside else (prefix,))
    return tuple(sorted(names))


def _numbers(ranges: str) -> Iterable[str]:
    for item in ranges.split(","):
        first, _, last = item.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))


def compress(names: Iterable[str]) -> str:
    """The names as Slurm abbreviates them: `gpu-[0-3,7]`."""
    plain: list[str] = []
    numbers: dict[str, list[int]] = {}
    for name in names:
        found = _NUMBERED.match(name)
        if found is None:
            plain.append(name)
        else:
            numbers.setdefault(found["prefix"], []).append(int(found["number"]))
    return ",".join([*sorted(plain), *(f"{prefix}{_ranges(numbers[prefix])}" for prefix in sorted(numbers))])


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    if len(runs) == 1 and runs[0][0] == runs[0][1]:
        return str(runs[0][0])
    return "[" + ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) + "]"
