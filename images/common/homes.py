"""Homes in the jail."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from images.common.jail_view import make_directory


def make_home(jail: Path, home: str, uid: int, gid: int) -> bool:
    """Make a home from the jail's /etc/skel, only for its owner. False where there is something of that name already.

    It appears whole: a program that looks meanwhile sees none. Raises JailViewError where the way to it is not made of
    directories: a symbolic link means another place outside the jail, where this runs, than inside.
    """
    target = jail / home.lstrip("/")
    if os.path.lexists(target):
        return False
    above = make_directory(jail, str(Path(home).parent))
    try:
        # By the descriptor: the path could lead elsewhere by now.
        _make(Path(f"/proc/self/fd/{above}") / target.name, jail / "etc/skel", uid, gid)
    finally:
        os.close(above)
    return True


def _make(target: Path, skeleton: Path, uid: int, gid: int) -> None:
    # Nobody else gets in here: who owned a part of it already could put a link where the next one is to be given away.
    closed = target.with_name(f".{target.name}.{os.getpid()}.new")
    made = closed / "home"
    try:
        closed.mkdir(mode=0o700)
        if skeleton.is_dir():
            shutil.copytree(skeleton, made, symlinks=True)
        else:
            made.mkdir()
        for path in (made, *made.rglob("*")):
            os.lchown(path, uid, gid)
        made.chmod(0o700)
        made.rename(target)
    finally:
        shutil.rmtree(closed, ignore_errors=True)
