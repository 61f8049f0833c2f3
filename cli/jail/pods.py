"""Which root a pod leads into."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from slurm.names import JAIL_DIR, JAIL_ROOTS

FIRST = "first"
"""The root without a name, for people. No root can be called so."""


def root_of(pod: Mapping[str, Any]) -> str | None:
    """Name of the root that a pod's specification leads into; empty: the first one; None: it leads into none."""
    for container in pod.get("containers") or ():
        for item in container.get("volumeMounts") or ():
            if item.get("mountPath") == JAIL_DIR:
                found = re.fullmatch(rf"{re.escape(JAIL_ROOTS)}/([^/]+)/root", str(item.get("subPath") or ""))
                return found.group(1) if found else ""
    return None
