"""Machines as the watcher follows them."""

from __future__ import annotations

from collections.abc import Mapping


class Followed:
    """A follower whose copy the test sets."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self.synced = True
        self.copy = dict(values)

    def values(self) -> Mapping[str, object]:
        return dict(self.copy)
