"""The checks of a node: a new one is a file here, and a name in `MODULES`."""

from __future__ import annotations

import importlib

from images.common.health.contract import Check, Hardware, Node

MODULES: dict[Hardware, tuple[str, ...]] = {
    # The first to touch the jail says how long that takes.
    "any": ("filesystem", "disks", "dns", "munge"),
    "gpu": ("gpu_free", "gpu_presence"),
    "infiniband": ("infiniband",),
}


def find_checks(node: Node | None = None) -> dict[str, Check]:
    """By name, in the order in which they run. Of a node those that it should have the hardware for."""
    names = [name for hardware in MODULES for name in MODULES[hardware] if node is None or node.has(hardware)]
    checks: list[Check] = [importlib.import_module(f"{__name__}.{name}").CHECK for name in names]
    return {check.name: check for check in checks}
