"""Slurm's releases in their order, and which can follow which."""

from __future__ import annotations

from typing import Final

RELEASES: Final = ("23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")
"""From the oldest that can become one of ours. A major release is a month; what follows it only mends."""

WINDOW: Final = 3
"""Major releases that slurmdbd and slurmctld read back: states, tables and messages of older ones they refuse."""


def obstacle(old: str, new: str) -> str | None:
    """Why a cluster of the release `old` cannot become one of `new`, in words that follow `24.11 to 26.05`; or None."""
    before, after = RELEASES.index(old), RELEASES.index(new)
    if after == before:
        return "is no upgrade: that release runs already"
    if after < before:
        return "goes back: slurmdbd and slurmctld never read what a newer one has left"
    if after - before > WINDOW:
        between = RELEASES[before + WINDOW]
        return f"is more than {WINDOW} releases: go by way of {between}"
    return None
