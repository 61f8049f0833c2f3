"""The checks of a node: a new one is a file in `images/health/checks` and a name here."""

from __future__ import annotations

import importlib
from collections.abc import Container, Mapping

from images.common.health.contract import Check, Hardware, Node

MODULES: dict[Hardware, tuple[str, ...]] = {
    # The first to touch the jail says how long that takes.
    "any": ("filesystem", "disks", "dns", "munge"),
    "gpu": ("gpu_free", "gpu_presence", "gpu_xid"),
    "infiniband": ("infiniband",),
}


def find_checks(node: Node | None = None) -> dict[str, Check]:
    """By name, in the order in which they run. Of a node those that it should have the hardware for."""
    names = [name for hardware in MODULES for name in MODULES[hardware] if node is None or has(node, hardware)]
    checks: list[Check] = [importlib.import_module(f"images.health.checks.{name}").CHECK for name in names]
    return {check.name: check for check in checks}


def has(node: Node, hardware: Hardware) -> bool:
    """Whether the node should have what a check looks at. Whether it has is for the check to say."""
    return {"any": True, "gpu": node.gpus > 0, "infiniband": node.infiniband}[hardware]


def wanted(checks: Mapping[str, Check], node: Node, off: Container[str]) -> list[Check]:
    """Those that run on this node, without what the site has turned off."""
    return [check for check in checks.values() if check.name not in off and has(node, check.hardware)]
