"""What is mounted in this container, as the kernel lists it, and bind mounts onto what is held open.

mount(8) takes paths, and whoever can write in the jail can put a symbolic link into one: the pod's /tmp would come over
the pod's programs. `attach` makes the calls of mount_setattr(2), open_tree(2) and move_mount(2) (Linux 5.12); the C
library of Debian 12 has them, but no program of it binds with them.
"""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from images.common.files import lines_in, text_of
from images.common.process import CannotGoOnError

MOUNTINFO: Final = Path("/proc/self/mountinfo")

_ASKS_EACH_TIME: Final = frozenset({"lookupcache=none", "noac"})
"""Options of NFS with which a client asks the server for each part of a path (nfs(5))."""


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """One line of the kernel's list."""

    point: str
    """Where it is mounted."""
    filesystem: str
    """Type of the file system: `ext4`, `virtiofs`, `overlay`, ..."""
    options: frozenset[str] = frozenset()
    """Of the file system: `rw`, `lookupcache=none`, ..."""


def read_mounts(mountinfo: Path = MOUNTINFO) -> list[Mounted]:
    """Everything that is mounted in this mount namespace, in the kernel's order."""
    return [_parse(line) for line in lines_in(text_of(mountinfo, "surrogateescape"))]


def _parse(line: str) -> Mounted:
    """A line of proc_pid_mountinfo(5): the fifth field is the point, the first after `-` the type."""
    place, _, device = line.partition(" - ")
    point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), place.split(" ")[4])
    filesystem, *_, options = device.split(" ")
    return Mounted(point=point, filesystem=filesystem, options=frozenset(options.split(",")))


def mount_points(mountinfo: Path = MOUNTINFO) -> frozenset[str]:
    """Where something is mounted in this mount namespace."""
    return frozenset(mounted.point for mounted in read_mounts(mountinfo))


class WrongFilesystemError(CannotGoOnError):
    """A volume is not what it should be: writing to it would fill the machine's own disk."""


def expect_filesystem(directory: Path, expected: str, mountinfo: Path = MOUNTINFO) -> None:
    """Raise WrongFilesystemError unless a directory is on a file system of this type; an empty type allows any.

    A volume of the cloud is a directory of the machine, to which the machine mounts it at its start. Where that failed,
    the directory is there all the same, empty and on the machine's own disk.
    """
    if not expected:
        return
    nearest = _nearest(directory, mountinfo)
    actual = nearest.filesystem if nearest else "nothing"
    if actual != expected:
        raise WrongFilesystemError(
            f"{directory} is on {actual} instead of {expected}: this machine has not mounted the shared file system, "
            "and what is written here would stay on its own disk. Look at its cloud-init log and `findmnt`; a new "
            "machine mends it"
        )


def _nearest(directory: Path, mountinfo: Path) -> Mounted | None:
    """What a directory is on."""
    path = PurePosixPath(directory)
    around = {path, *path.parents}
    found = [mounted for mounted in read_mounts(mountinfo) if PurePosixPath(mounted.point) in around]
    # Of several mounts at one point, the last one is what programs see.
    nearest = max(enumerate(found), key=lambda item: (len(PurePosixPath(item[1].point).parts), item[0]), default=None)
    return nearest[1] if nearest else None


def remembers_names(directory: Path, mountinfo: Path = MOUNTINFO) -> bool:
    """Whether a directory is on NFS whose client believes for up to a minute that what was renamed is where it was."""
    on = _nearest(directory, mountinfo)
    return on is not None and on.filesystem in {"nfs", "nfs4"} and not on.options & _ASKS_EACH_TIME


def expect_volume(directory: Path) -> None:
    """Raise WrongFilesystemError unless the pod's volume is what the pod's `EXPECT_FILESYSTEM` says.

    A container sees only what was mounted when it started, so only a restart helps.
    """
    expect_filesystem(directory, os.environ.get("EXPECT_FILESYSTEM", ""))


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
            _done(libc().mount_setattr(tree, b"", _AT_EMPTY_PATH, ctypes.byref(wanted), size), source)
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
    _done(libc().mount_setattr(_AT_FDCWD, os.fsencode(mounted), 0, ctypes.byref(wanted), size), mounted)


def copy_tree(source: Path, *, recursive: bool) -> int:
    """A descriptor for a copy of what is mounted at `source`, which is nowhere yet. Raises OSError."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | (_AT_RECURSIVE if recursive else 0)
    return _done(libc().open_tree(_AT_FDCWD, os.fsencode(source), flags), source)


def put_tree(tree: int, target: int, source: Path) -> None:
    """Mount a copy over what the descriptor `target` is open for. Raises OSError, which names `source`."""
    _done(libc().move_mount(tree, b"", target, b"", _FROM_AND_TO_DESCRIPTORS), source)


def libc() -> ctypes.CDLL:
    """The C library, for calls that Python has not."""
    return ctypes.CDLL(None, use_errno=True)


def expect_done(result: int, what: str) -> None:
    """Raise OSError, `cannot WHAT: REASON`, unless a call of the C library has worked."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot {what}: {os.strerror(number)}")


def _done(result: int, source: Path) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(source))
    return result
