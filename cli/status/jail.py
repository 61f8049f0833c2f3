"""The jail as a pod that has it sees it: mounted, how much is free, by which version it was populated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cli.kubectl.client import Kubectl, complaint
from images.common.readiness import JAIL_MARKER
from slurm.names import HOMES_ENV, JAIL_DIR

_SECONDS = 5
"""For the answer: a file server that is away never gives one."""

_SCRIPT = (
    f"timeout -k 1 {_SECONDS} df -Pk {JAIL_DIR} ${HOMES_ENV} && echo && timeout 1 head -c 4096 {JAIL_DIR}/{JAIL_MARKER}"
)


@dataclass(frozen=True, kw_only=True)
class Jail:
    """The jail's file system."""

    seen_by: str
    """The pod that was asked."""
    mounted: bool
    size: int = 0
    """Bytes."""
    free: int = 0
    """Bytes."""
    version: str = ""
    """Of the image that it was populated from; empty if it was not."""
    homes: tuple[int, int] | None = None
    """Size and free bytes of the volume of homes, where they have one."""


def read_jail(kubectl: Kubectl, namespace: str, places: Sequence[tuple[str, str]]) -> tuple[Jail | None, str]:
    """What the first of these pods, each with a container, that answers says; else None, and why the last did not."""
    why = "no pod of the stack has the jail"
    for pod, container in places:
        where = ("exec", "-n", namespace, pod, "-c", container, "--", "sh", "-c", _SCRIPT)
        done = kubectl.run(*where, check=False, seconds=_SECONDS + 2)
        found = _jail(pod, done.stdout)
        if found is not None:
            return found, ""
        why = f"{pod}: {' '.join(complaint(done).split())}"
        if "forbidden" in done.stderr:
            return None, f"not allowed to run commands in {pod}"
    return None, why


def _jail(pod: str, printed: str) -> Jail | None:
    table, _, marker = printed.partition("\n\n")
    rows = [line.split() for line in table.splitlines()[1:]]
    if not rows or not all(len(row) >= 6 and row[1].isdecimal() and row[3].isdecimal() for row in rows):
        return None
    try:
        version = str(json.loads(marker)["version"])[:64]
    except (ValueError, KeyError, TypeError, RecursionError):  # root in the jail may write anything there
        version = ""
    (size, free), *homes = [(1024 * int(row[1]), 1024 * int(row[3])) for row in rows]
    mounted = rows[0][5] == JAIL_DIR
    return Jail(seen_by=pod, mounted=mounted, size=size, free=free, version=version, homes=homes[0] if homes else None)
