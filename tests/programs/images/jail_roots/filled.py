"""Roots of a jail's volume, filled from a small image."""

from __future__ import annotations

from pathlib import Path

from images.jail.populate import Wanted, populate, populate_root


def nothing_said(_: str) -> None:
    pass


def fill(source: Path, volume: Path, name: str, version: str = "24.11-abc", release: str = "24.11") -> int:
    if not name:
        return populate(source, volume, version, nothing_said, frozenset({"/"}))
    wanted = Wanted(volume=volume, name=name, version=version, release=release)
    return populate_root(source, wanted, nothing_said, frozenset({"/"}))
