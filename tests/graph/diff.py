"""The difference between two recorded graphs."""

from __future__ import annotations

from typing import Any

from cli.program.values import reveal
from tests.recordings import record

FORCES_REPLACEMENT: dict[str, tuple[str, ...]] = {
    "StatefulSet": (
        "metadata.name",
        "metadata.namespace",
        "spec.selector",
        "spec.serviceName",
        "spec.podManagementPolicy",
    ),
    "PersistentVolumeClaim": (
        "metadata.name",
        "metadata.namespace",
        "spec.accessModes",
        "spec.storageClassName",
        "spec.volumeName",
    ),
    "PersistentVolume": ("metadata.name", "spec.hostPath"),
    "Job": ("metadata.name", "metadata.namespace", "spec.template", "spec.selector"),
    "RoleBinding": ("metadata.name", "metadata.namespace", "roleRef"),
    "RandomBytes": ("length", "keepers"),
}
"""Input properties whose change makes the provider replace the object, as the provider itself lists them."""


_NAME_AND_PLACE = ("metadata.name", "metadata.namespace")


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        return {
            key: item
            for name, below in value.items()
            for key, item in _flat(below, f"{path}.{name}" if path else name).items()
        }
    return {path: value}


class Diff:
    """Two runs of the program compared, by URN."""

    def __init__(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        old = {item.urn: item for item in record(before, stack="test")}
        new = {item.urn: item for item in record(after, stack="test")}
        self.added = sorted(new[urn].name for urn in new.keys() - old.keys())
        self.removed = sorted(old[urn].name for urn in old.keys() - new.keys())
        self.changed: dict[str, list[str]] = {}
        self.replaced: list[str] = []
        for urn in old.keys() & new.keys():
            first, second = _flat(reveal(old[urn].inputs)), _flat(reveal(new[urn].inputs))
            paths = sorted(path for path in first.keys() | second.keys() if first.get(path) != second.get(path))
            if paths:
                self.changed[new[urn].name] = paths
                forcing = FORCES_REPLACEMENT.get(new[urn].type.rsplit(":", 1)[1], _NAME_AND_PLACE)
                if any(path == force or path.startswith(f"{force}.") for path in paths for force in forcing):
                    self.replaced.append(new[urn].name)
        self.replaced.sort()
