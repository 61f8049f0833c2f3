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
    make_directory(jail, str(Path(home).parent))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.new")
    skeleton = jail / "etc/skel"
    try:
        if skeleton.is_dir():
            shutil.copytree(skeleton, temporary, symlinks=True)
        else:
            temporary.mkdir()
        for path in (temporary, *temporary.rglob("*")):
            os.lchown(path, uid, gid)
        temporary.chmod(0o700)
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True
