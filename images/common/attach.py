"""Bind mounts onto something that is held open, where a path could be made to lead elsewhere meanwhile.

mount(8) takes paths, and whoever can write in the jail can put a symbolic link into one: the pod's /tmp would come over
the pod's programs. These are the calls of mount_setattr(2), open_tree(2) and move_mount(2) (Linux 5.12); the C library
of Debian 12 has them, but no program of it binds with them.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

_AT_FDCWD: Final = -100
_AT_EMPTY_PATH: Final = 0x1000
_AT_RECURSIVE: Final = 0x8000
_OPEN_TREE_CLONE: Final = 1
_MOUNT_ATTR_RDONLY: Final = 1
_MOUNT_ATTR_NOSUID_NODEV: Final = 2 | 4
_MOUNT_ATTR_NOSYMFOLLOW: Final = 0x200000
_FROM_AND_TO_DESCRIPTORS: Final = 0x04 | 0x40
"""MOVE_MOUNT_F_EMPTY_PATH and MOVE_MOUNT_T_EMPTY_PATH."""


class _Attributes(ctypes.Structure):
    """struct mount_attr."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def attach(source: Path, target: int, *, recursive: bool = False, read_only: bool = False) -> None:
    """Bind `source` over what the descriptor `target` (O_PATH is enough) is open for.

    `recursive`: with all that is mounted below it. `read_only`: from its first moment, and not what is mounted below.
    Raises OSError, most often EPERM: the container lacks CAP_SYS_ADMIN.
    """
    tree = copy_tree(source, recursive=recursive)
    try:
        if read_only:
            wanted = _Attributes(attr_set=_MOUNT_ATTR_RDONLY)
            size = ctypes.c_size_t(ctypes.sizeof(wanted))
            _done(_libc().mount_setattr(tree, b"", _AT_EMPTY_PATH, ctypes.byref(wanted), size), source)
        put_tree(tree, target, source)
    finally:
        os.close(tree)


def restrict(mounted: Path) -> None:
    """Have no program of a mount change its rights (nosuid), and none of its files be a device (nodev).

    What is bound from it later is as strict; its other options stay. Raises OSError, as where nothing is mounted there.
    """
    _set(mounted, _MOUNT_ATTR_NOSUID_NODEV)


def follow_no_links(mounted: Path) -> None:
    """Have no symbolic link of a mount lead anywhere, for whoever opens a path in it; links can still be read and made.

    In this mount namespace alone. Takes Linux 5.14 and CAP_SYS_ADMIN. Raises OSError.
    """
    _set(mounted, _MOUNT_ATTR_NOSYMFOLLOW)


def _set(mounted: Path, attributes: int) -> None:
    wanted = _Attributes(attr_set=attributes)
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    _done(_libc().mount_setattr(_AT_FDCWD, os.fsencode(mounted), 0, ctypes.byref(wanted), size), mounted)


def copy_tree(source: Path, *, recursive: bool) -> int:
    """A descriptor for a copy of what is mounted at `source`, which is nowhere yet. Raises OSError."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    return _done(_libc().open_tree(_AT_FDCWD, os.fsencode(source), flags), source)


def put_tree(tree: int, target: int, source: Path) -> None:
    """Mount a copy over what the descriptor `target` is open for. Raises OSError, which names `source`."""
    _done(_libc().move_mount(tree, b"", target, b"", _FROM_AND_TO_DESCRIPTORS), source)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _done(result: int, source: Path) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(source))
    return result
