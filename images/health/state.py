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
from collections.abc import Iterator, Mapping
from typing import Any, Final

from images.common.health.contract import Node

METRICS: Final = "metrics.prom"
LAST: Final = "last"
"""What was reported last; where nothing is known of it, the next report is news."""
PROLOG: Final = "prolog"
"""What a prolog found last that is not well, or well again, and when. Of its own: the interval's program may run at the
same time."""

GAP_SECONDS: Final = 300.0
"""What was last seen longer ago counts as new: nobody looked meanwhile. Ten intervals of `HealthCheckProgram`."""


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
def only_me(node: Node, name: str) -> Iterator[bool]:
    """Whether no other process does the same thing now; also where nobody knows."""
    try:
        node.state.mkdir(parents=True, exist_ok=True)
        # Others cannot even read it: in a pod without the jail a job's reading lock would keep root out.
        lock = os.fdopen(os.open(node.state / f"{name}.lock", os.O_WRONLY | os.O_CREAT, 0o600), "w")
    except OSError:
        yield True
        return
    with lock:
        try:
            # Of this process alone: one of flock() would be held by a check that cannot be killed, too.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def lasts(node: Node, check: str, *, now: bool) -> float:
    """For how many seconds what holds if `now` has held in every run; 0.0 the first time. Raises OSError.

    A look at one moment cannot tell a process that waits for a disk from one that will never wake up, nor a name server
    that lost one packet from one that is gone.
    """
    name = f"{check}.since"
    held = recall(node, name).get("held")
    if not now:
        if held:
            write(node, f"{name}.json", "{}")
        return 0.0
    at = time.monotonic()
    first, last = held or (at, at)
    if not 0.0 <= at - last <= GAP_SECONDS:  # a clock that is behind is one of another boot
        first = at
    write(node, f"{name}.json", json.dumps({"held": [first, at]}))
    return float(at - first)
