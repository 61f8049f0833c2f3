"""Lengths of time as Slurm counts them."""

from __future__ import annotations

import math

from config.times import seconds


def minutes(limit: str) -> float:
    """A time limit in minutes, infinite for UNLIMITED."""
    length = seconds(limit)
    return math.inf if length is None else length / 60
