"""Slurm's host lists."""

from __future__ import annotations

import re
from collections.abc import Iterable


def expand(hosts: str) -> tuple[str, ...]:
    """Names in a host list such as `gpu-[0-3,7],cpu-0`."""
    names: list[str] = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", hosts):
        prefix, _, inside = part.strip(",").partition("[")
        names += [prefix + number for number in _numbers(inside.rstrip("]"))] if inside else [prefix]
    return tuple(sorted(names))


def _numbers(ranges: str) -> Iterable[str]:
    for item in ranges.split(","):
        first, _, last = item.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield str(number).zfill(len(first))
