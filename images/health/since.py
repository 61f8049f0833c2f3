"""Since when something is so, remembered from one run of a check to the next.

A look at one moment cannot tell a process that waits for a disk from one that will never wake up, nor a name server
that lost one packet from one that is gone. What is so in every run for a while is more than an accident.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

GAP_SECONDS: Final = 300.0
"""What was last seen longer ago counts as new: nobody looked meanwhile. Ten intervals of `HealthCheckProgram`."""


def held_for(
    state: Path, check: str, conditions: Iterable[str], clock: Callable[[], float] = time.monotonic
) -> dict[str, float]:
    """For how many seconds each of these conditions, which hold now, has held in every run; 0.0 the first time.

    A condition that is not named any more is forgotten. `state` is the directory that a restart of the pod forgets;
    `check` names the file in it; a condition may not contain a line break.
    """
    path = state / f"{check}.since"
    before = _read(path)
    now = clock()
    after = {}
    for condition in conditions:
        first, last = before.get(condition, (now, now))
        # A clock that is behind is one of another boot.
        after[condition] = (first if 0.0 <= now - last <= GAP_SECONDS else now, now)
    if after or before:
        _write(path, after)
    return {condition: now - first for condition, (first, _) in after.items()}


def _read(path: Path) -> dict[str, tuple[float, float]]:
    """What the last run left; nothing where there is no such file or somebody else wrote it."""
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        first, _, rest = line.partition(" ")
        last, _, condition = rest.partition(" ")
        try:
            found[condition] = (float(first), float(last))
        except ValueError:
            continue
    return found


def _write(path: Path, conditions: dict[str, tuple[float, float]]) -> None:
    """Replace the file in one step. Without fsync: what a crash of the machine forgets is worth nothing after it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    text = "".join(f"{first:.3f} {last:.3f} {condition}\n" for condition, (first, last) in conditions.items())
    temporary.write_text(text, encoding="utf-8", errors="surrogateescape")
    temporary.replace(path)
