"""What a check remembers until its next run, in the node's state directory. A restart of the pod forgets it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable
from typing import Any, Final

from images.common.files import write_atomically
from images.health.contract import Node

GAP_SECONDS: Final = 120.0
"""A thing that nobody has looked for during this time (four runs) counts as seen for the first time."""


def recall(node: Node, name: str) -> dict[str, Any]:
    """What was remembered under `name`; nothing, if nobody did or it cannot be read: a check must work without."""
    try:
        kept = json.loads((node.state / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def remember(node: Node, name: str, what: dict[str, Any]) -> None:
    """Keep `what`, which JSON can hold. Where that fails, the next run knows nothing."""
    with contextlib.suppress(OSError):
        node.state.mkdir(parents=True, exist_ok=True)
        write_atomically(node.state / f"{name}.json", json.dumps(what))


def this_boot(node: Node) -> str:
    """The kernel's name for the time since the machine started; empty if it tells none."""
    try:
        return (node.root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def lasting(node: Node, name: str, seen: Iterable[str]) -> dict[str, float]:
    """For how many seconds each thing in `seen` has been there, in every look since; 0 if it is new."""
    now = time.time()
    before = recall(node, name)
    found = {}
    for thing in seen:
        times = before.get(thing)
        since = now
        if isinstance(times, list) and len(times) == 2 and all(isinstance(each, (int, float)) for each in times):
            first, last = times
            if first <= last <= now < last + GAP_SECONDS:
                since = first
        found[thing] = since
    if found or before:
        remember(node, name, {thing: [since, now] for thing, since in found.items()})
    return {thing: now - since for thing, since in found.items()}
