"""Slurm's notation of times."""

from __future__ import annotations

import math


def minutes(time: str) -> float:
    """A time limit in minutes, infinite for UNLIMITED.

    `30` (minutes), `1:30` (minutes:seconds), `1:30:00`, `1-12` (days-hours), `1-12:30`, `1-12:30:00`.
    """
    if time.upper() in {"INFINITE", "UNLIMITED"}:
        return math.inf
    days, dash, rest = time.rpartition("-")
    numbers = [int(part) for part in rest.split(":")]
    if dash:
        hours, mins, seconds = (*numbers, 0, 0)[:3]
        return int(days) * 1440 + hours * 60 + mins + seconds / 60
    if len(numbers) == 3:
        return numbers[0] * 60 + numbers[1] + numbers[2] / 60
    return numbers[0] + (numbers[1] / 60 if len(numbers) == 2 else 0)
