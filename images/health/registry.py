"""All checks: whatever modules in `images/health/checks` declare. A new check is a new file there."""

from __future__ import annotations

import importlib
import os
from collections.abc import Container
from dataclasses import dataclass, field
from types import ModuleType

from images.health import checks as package
from images.health.contract import Check, Context, Node


@dataclass(kw_only=True)
class Registry:
    """What was found."""

    checks: dict[str, Check] = field(default_factory=dict)
    """By name."""
    broken: dict[str, str] = field(default_factory=dict)
    """Modules that cannot be used, called as a check would be -> why."""

    def of(self, context: Context, node: Node, off: Container[str] = (), *, more: Container[str] = ()) -> list[Check]:
        """The checks that run on this node on this occasion, and `more`, without those that the site has turned off.

        In this order.
        """
        found = [
            check
            for check in self.checks.values()
            if (context in check.contexts or check.name in more) and check.name not in off and fits(check, node)
        ]
        return sorted(found, key=lambda check: not check.first)


def fits(check: Check, node: Node) -> bool:
    """Whether the node should have what the check looks at. Whether it has is for the check to say."""
    return {"any": True, "gpu": node.gpus > 0, "infiniband": node.infiniband}.get(check.hardware, False)


def find_checks(where: ModuleType = package, *, node: Node | None = None) -> Registry:
    """Import the modules of the package. One that fails to import costs only its own checks.

    With a `node`, those are left out that only have checks for hardware that it should not have: importing them takes
    a third of the CPU time of a run on a node without GPUs.
    """
    found = Registry()
    for name in _modules(where, node):
        try:
            module = importlib.import_module(f"{where.__name__}.{name}")
        except Exception as error:  # noqa: BLE001  (whatever a module does when it is imported)
            found.broken[name.replace("_", "-")] = f"cannot be loaded: {type(error).__name__}: {error}"
            continue
        for check in [value for value in vars(module).values() if isinstance(value, Check)]:
            known = found.checks.setdefault(check.name, check)
            if known is not check:
                found.broken[f"{check.name}-again"] = f"{name} declares a second check of this name"
    return found


def _modules(where: ModuleType, node: Node | None) -> list[str]:
    """Names of the modules that may declare checks, by their text."""
    names = []
    for path in where.__path__:
        for file in os.listdir(path):  # noqa: PTH208  (as fast as can be: this runs twice a minute)
            if file.endswith(".py") and not file.startswith("_"):
                with open(f"{path}/{file}", "rb") as source:  # noqa: PTH123
                    text = source.read()
                absent = node is not None and any(mark in text for mark in _marks_of_absent(node))
                if b"Check(" in text and not absent:
                    names.append(file.removesuffix(".py"))
    return sorted(names)


def _marks_of_absent(node: Node) -> list[bytes]:
    has = {b"gpu": node.gpus > 0, b"infiniband": node.infiniband}
    return [b'hardware="' + hardware + b'"' for hardware in has if not has[hardware]]
