"""What checks and programs remember until their next run, in the node's state directory.

A restart of the pod forgets it. Small files, replaced in one step and not forced to disk: a disk that hangs must not
hang the report, and after a crash nothing of it is needed. Where a file cannot be read, nothing is known, and whoever
asks has to work with that.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from images.common.health.contract import Node

METRICS: Final = "metrics.prom"
BETWEEN_JOBS: Final = "between-jobs"
"""What checks found that look only while no job runs: check -> its result."""

GAP_SECONDS: Final = 300.0
"""What was last seen longer ago counts as new: nobody looked meanwhile. Ten intervals of `HealthCheckProgram`."""

QUIET_SECONDS: Final = 600.0
_HOUR: Final = 3600.0
_SAMPLE_SECONDS: Final = 300.0
"""How old the last kept figures of counters are when new ones are kept: 12 an hour."""


def write(node: Node, name: str, text: str) -> None:
    """Replace a file. Raises OSError."""
    node.state.mkdir(parents=True, exist_ok=True)
    temporary = node.state / f".{name}.{os.getpid()}"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(node.state / name)


def remember(node: Node, name: str, what: Mapping[str, Any]) -> None:
    """Keep `what`, which JSON can hold. Where that fails, the next run knows nothing."""
    with contextlib.suppress(OSError):
        write(node, f"{name}.json", json.dumps(what))


def recall(node: Node, name: str) -> dict[str, Any]:
    """What was remembered under `name`; nothing, if nobody did or it cannot be read."""
    try:
        kept = json.loads((node.state / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


@contextlib.contextmanager
def only_me(node: Node, name: str, *, waits: bool = False) -> Iterator[bool]:
    """Whether no other process does the same thing now; also where nobody knows. `waits`: until it is so."""
    try:
        node.state.mkdir(parents=True, exist_ok=True)
        lock = open_lock(node.state / f"{name}.lock")
    except OSError:
        yield True
        return
    with lock as file:
        is_free = True
        try:
            # Of this process alone: one of flock() would be held by a check that cannot be killed, too.
            fcntl.lockf(file, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            is_free = False
        except OSError:
            pass  # a file system without locks
        yield is_free


def open_lock(path: Path) -> IO[str]:
    """Open a file to lock. Raises OSError.

    Others cannot even read it: in a pod without the jail a job's reading lock would keep root out.
    """
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w")


def held_for(
    node: Node, check: str, conditions: Iterable[str], clock: Callable[[], float] = time.monotonic
) -> dict[str, float]:
    """For how many seconds each of these conditions, which hold now, has held in every run; 0.0 the first time.

    A look at one moment cannot tell a process that waits for a disk from one that will never wake up, nor a name server
    that lost one packet from one that is gone. A condition that is not named any more is forgotten. Raises OSError.
    """
    name = f"{check}.since"
    before = recall(node, name)
    now = clock()
    after = {}
    for condition in conditions:
        try:
            first, last = (float(at) for at in before[condition])
        except (KeyError, TypeError, ValueError):
            first = last = now
        # A clock that is behind is one of another boot.
        after[condition] = (first if 0.0 <= now - last <= GAP_SECONDS else now, now)
    if after or before:
        write(node, f"{name}.json", json.dumps(after))
    return {condition: now - first for condition, (first, _) in after.items()}


def lasts(node: Node, check: str, *, now: bool, clock: Callable[[], float] = time.monotonic) -> float:
    """The same of a check that has one condition: whether it holds now goes in. Raises OSError."""
    return held_for(node, check, ["held"] if now else [], clock).get("held", 0.0)


@dataclass(frozen=True, kw_only=True)
class Rise:
    """Counter -> by how much it rose: one that began with the driver says nothing about now."""

    hour: Mapping[str, int]
    """Since the oldest remembered figures of the last hour."""
    recent: Mapping[str, int]
    """Since those of about `QUIET_SECONDS` ago; what is remembered is less than `_SAMPLE_SECONDS` away from it."""


def rises(node: Node, name: str, now_at: Mapping[str, Mapping[str, int]]) -> dict[str, Rise]:
    """What rose, by device. `name`: the check's; `now_at`: device -> counter -> its value."""
    now = time.time()
    before = recall(node, name)
    found: dict[str, Rise] = {}
    kept: dict[str, Any] = {}
    for device, counters in now_at.items():
        samples = [each for each in _samples(before.get(device)) if 0 <= now - each[0] <= _HOUR]
        if any(counters.get(counter, 0) < count for _, figures in samples for counter, count in figures.items()):
            samples = []  # set back to 0, by hand or by a new start of the driver
        first = samples[0][1] if samples else {}
        before_it = [figures for when, figures in samples if now - when >= QUIET_SECONDS]
        found[device] = Rise(hour=_rise(counters, first), recent=_rise(counters, before_it[-1] if before_it else first))
        if not samples or now - samples[-1][0] >= _SAMPLE_SECONDS:
            samples.append((now, dict(counters)))
        kept[device] = samples
    if kept != {device: _samples(value) for device, value in before.items()}:
        remember(node, name, kept)
    return found


def _rise(counters: Mapping[str, int], first: Mapping[str, int]) -> dict[str, int]:
    return {counter: count - first.get(counter, count) for counter, count in counters.items()}


def _samples(value: Any) -> list[tuple[float, dict[str, int]]]:
    try:
        return [(float(when), {str(name): int(count) for name, count in figures.items()}) for when, figures in value]
    except (AttributeError, TypeError, ValueError):
        return []
