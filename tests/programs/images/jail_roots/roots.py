"""What tests of named roots do to the jail's volume."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from images.jail.accounts import Declared, User
from images.jail.populate import Wanted, populate, populate_root
from images.jail.users import apply_everywhere

ME = os.getuid() or 10001


def nothing_said(_: str) -> None:
    pass


def fill(source: Path, volume: Path, name: str, version: str = "24.11-abc", release: str = "24.11") -> int:
    if not name:
        return populate(source, volume, version, nothing_said, frozenset({"/"}))
    wanted = Wanted(volume=volume, name=name, version=version, release=release)
    return populate_root(source, wanted, nothing_said, frozenset({"/"}))


def apply(volume: Path, **users: User) -> list[str]:
    said: list[str] = []
    apply_everywhere(volume, Declared(users=users), said.append)
    return said


def user(uid: int = ME, **more: Any) -> User:
    return User(**{"uid": uid, "gid": uid, **more})


def passwd(root: Path) -> dict[str, str]:
    lines = (root / "etc/passwd").read_text().splitlines()
    return {line.split(":")[0]: line.split(":")[2] for line in lines}
