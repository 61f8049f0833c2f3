"""Sections and keys of earlier versions, and what became of each."""

from __future__ import annotations

from typing import Final

_FOLLOWED: Final = "this key is gone, as login nodes follow their sessions no longer: remove it"

GONE: Final = {
    "health.machines.conditions": "this key is gone: remove it. `release: cordon` with `release_condition` sets a "
    "condition of your choice on machines that are drained for a hardware fault and free of jobs",
    "prices": "this section is gone, and so is `slurmstack cost`: remove it. Your provider's own price list and "
    "calculator serve instead",
    "worker_nodes.*.launch": "this key is gone: remove it. Where a node of a job does not come, its others are always "
    "ended at once",
    "worker_nodes.*.warm_machines": "this key is gone: remove it. `size.min` keeps nodes, and so their machines, in "
    "`windows` too",
    "login.sessions_per_node": _FOLLOWED,
    "login.idle_timeout": _FOLLOWED,
    "login.drain_timeout": _FOLLOWED,
}
"""By their places in a stack file; `*` is a name of the user's."""


def what_became(where: str) -> str | None:
    """Of a section or key that there was once; None for any other."""
    parts = where.split(".")
    for place, said in GONE.items():
        words = place.split(".")
        if len(words) == len(parts) and all(word in ("*", part) for word, part in zip(words, parts, strict=True)):
            return said
    return None
