"""What a check remembers until its next run, in the node's state directory. A restart of the pod forgets it."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from images.health.contract import Node
from images.health.state import State


def recall(node: Node, name: str) -> dict[str, Any]:
    """What was remembered under `name`; nothing, if nobody did or it cannot be read: a check must work without."""
    kept = State(directory=node.state).read_json(f"{name}.json")
    return kept if isinstance(kept, dict) else {}


def remember(node: Node, name: str, what: dict[str, Any]) -> None:
    """Keep `what`, which JSON can hold. Where that fails, the next run knows nothing."""
    with contextlib.suppress(OSError):
        State(directory=node.state).write(f"{name}.json", json.dumps(what))


def this_boot(node: Node) -> str:
    """The kernel's name for the time since the machine started; empty if it tells none."""
    try:
        return (node.root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
