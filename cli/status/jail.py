"""The jail as a pod that has it sees it: mounted, how much is free, by which version it was populated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from cli.kubectl.client import Kubectl, complaint
from images.common.readiness import JAIL_MARKER
from slurm.names import JAIL_DIR

_SECONDS = 5
"""For the answer: a file server that is away never gives one."""

_SCRIPT = f"timeout -k 1 {_SECONDS} df -Pk {JAIL_DIR} && echo && timeout 1 head -c 4096 {JAIL_DIR}/{JAIL_MARKER}"


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
    fields = table.strip().rpartition("\n")[2].split()
    if len(fields) < 6 or not (fields[1].isdecimal() and fields[3].isdecimal()):
        return None
    try:
        version = str(json.loads(marker)["version"])[:64]
    except (ValueError, KeyError, TypeError, RecursionError):  # root in the jail may write anything there
        version = ""
    mounted = fields[5] == JAIL_DIR
    return Jail(seen_by=pod, mounted=mounted, size=1024 * int(fields[1]), free=1024 * int(fields[3]), version=version)
