"""The difference between two recorded graphs."""

from __future__ import annotations

from typing import Any

from cli.change.change import compare, of_recording
from cli.program.recording import Registration
from cli.program.values import Resource, printable, reveal
from tests.recordings import record


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict) and value:
        below = [_flat(item, f"{path}.{name}" if path else name) for name, item in value.items()]
        return {key: item for part in below for key, item in part.items()}
    return {path: value}


class Diff:
    """Two runs of the program compared, by URN; what is replaced, with the paths because of which it is."""

    def __init__(self, before: dict[str, Any], after: dict[str, Any], *, preview: bool = False) -> None:
        first, second = record(before, stack="test"), record(after, stack="test", preview=preview)
        old, new = ({item.urn: item for item in recording} for recording in (first, second))
        self.added = sorted(self._key(new[urn]) for urn in new.keys() - old.keys())
        self.removed = sorted(self._key(old[urn]) for urn in old.keys() - new.keys())
        self.changed: dict[str, list[str]] = {}
        for urn in old.keys() & new.keys():
            left, right = (_flat(printable(reveal(side[urn].inputs))) for side in (old, new))
            paths = sorted(path for path in left.keys() | right.keys() if left.get(path) != right.get(path))
            if paths:
                self.changed[self._key(new[urn])] = paths
        self.replaced = {
            self._key(new[change.resource.urn]): [item.path for item in change.because]
            for change in compare(of_recording(first), of_recording(second))
            if change.action == "replace" and not change.cause
        }

    def _key(self, item: Registration | Resource) -> str:
        """By what a resource is told in all of these."""
        return item.name
