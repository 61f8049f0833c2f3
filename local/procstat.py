"""What the kernel says of a process in `/proc/PID/stat`."""

from __future__ import annotations


def _fields(stat: str) -> list[str]:
    """Give those behind the name, which is in parentheses and may itself have spaces and parentheses."""
    return stat.rpartition(")")[2].split()


def has_ended(stat: str) -> bool:
    """Tell whether nothing is left but an entry for its parent.

    A zombie with other threads is still ending: its files and ports are taken until the last of them has gone.
    """
    state, threads = _fields(stat)[0], int(_fields(stat)[17])
    return state == "X" or (state == "Z" and threads <= 1)


def start_ticks(stat: str) -> int | None:
    """Read when it was started, in clock ticks since boot; None when it has ended."""
    return None if has_ended(stat) else int(_fields(stat)[19])
