"""The jail's view of this pod: what is bound into the jail so that programs inside it can work; and homes in the jail.

The jail is a directory on a shared volume. Processes, devices, sockets and name resolution are this pod's own, and are
bound over empty directories and files that populate made there. The mounts belong to the container's own mount
namespace: nobody else sees them, and they are gone when the container is.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.files import Owner
from images.common.mountinfo import MOUNTINFO, attach, expect_filesystem, mount_points
from images.common.process import CannotGoOnError

SSSD_PIPES: Final = "/var/lib/sss/pipes"
"""Sockets of the pod's SSSD. A jail that was populated before there was one lacks the directory."""

SPOOL: Final = Path("/var/spool/slurmd")
CONF_CACHE: Final = SPOOL / "conf-cache"
"""slurmd's copy of the configuration: it and slurmstepd load the plugins that are named there, outside the jail."""

SKELETON: Final = "etc/skel"
_DEEPEST: Final = 128
"""Levels of directories of it that a home gets. Whoever is root in the jail can make any number."""
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class Bind:
    """One thing of the pod that is shown inside the jail."""

    path: str
    """Where it is shown inside the jail."""
    source: str = ""
    """Where it lies in the pod. Empty: at the same path."""
    recursive: bool = False
    read_only: bool = False
    """Not even root in the jail writes there: it lacks the capability to mount it otherwise."""
    make: bool = False
    """Whether an empty directory to bind to is made in the jail where it lacks one."""
    filesystem: str = ""
    """Type that its file system must have; empty: any."""


LOGIN_BINDS: Final = (
    Bind(path="/proc", recursive=True),
    Bind(path="/sys", recursive=True),
    Bind(path="/dev", recursive=True),
    Bind(path="/run/munge", read_only=True),
    Bind(path="/run/slurm", recursive=True, read_only=True),
    Bind(path="/tmp"),
    Bind(path="/etc/resolv.conf", read_only=True),
    Bind(path="/etc/hosts", read_only=True),
    Bind(path="/etc/hostname", read_only=True),
)


WORKER_BINDS: Final = (*LOGIN_BINDS, Bind(path=str(SPOOL)), Bind(path=str(CONF_CACHE), read_only=True))


def sssd_binds() -> tuple[Bind, ...]:
    """What programs inside the jail need to know the users of SSSD, where the pod has one (SSSD_PIPES is set)."""
    return (Bind(path=SSSD_PIPES, make=True, read_only=True),) if os.environ.get("SSSD_PIPES") else ()


def user_volumes(text: str) -> list[Bind]:
    """The shared volumes that the stack file mounts besides the jail, from the pod's `MOUNTS`.

    In the order of mounting: what contains another comes first.
    """
    binds = [Bind(**entry, recursive=True, make=True) for entry in json.loads(text or "[]")]
    return sorted(binds, key=lambda bind: bind.path)


class JailViewError(CannotGoOnError):
    """Something could not be bound into the jail."""


def bind_into_jail(
    jail: Path,
    binds: Sequence[Bind],
    log: Callable[[str], None],
    mountinfo: Path = MOUNTINFO,
    *,
    bind_mount: Callable[..., None] = attach,
) -> None:
    """Bind everything that is not bound yet. A second call changes nothing.

    Raises JailViewError when the jail lacks a target, or a mount fails (most often: the container lacks SYS_ADMIN), and
    WrongFilesystemError before anything is shown for a volume that is not what it should be: jobs would lose what they
    write.
    """
    for bind in binds:
        expect_filesystem(Path(bind.source or bind.path), bind.filesystem, mountinfo)
    present = mount_points(mountinfo)
    made = []
    for bind in binds:
        source = Path(bind.source or bind.path)
        if str(jail / bind.path.lstrip("/")) in present or not source.exists():
            continue
        show(jail, bind, bind_mount)
        made.append(bind.path)
    if made:
        log(f"bound into the jail at {jail}: {' '.join(made)}")


def show(jail: Path, bind: Bind, bind_mount: Callable[..., None] = attach) -> None:
    """Bind one thing into the jail. Raises JailViewError."""
    source = Path(bind.source or bind.path)
    with held(jail, bind.path, make=bind.make, kind="directory" if source.is_dir() else "file") as target:
        try:
            bind_mount(source, target, recursive=bind.recursive, read_only=bind.read_only)
        except OSError as error:
            raise JailViewError(
                f"cannot bind {source} to {bind.path} in the jail: {error.strerror} (the container needs CAP_SYS_ADMIN)"
            ) from error


@contextmanager
def held(jail: Path, path: str, *, make: bool = False, kind: str = "directory") -> Iterator[int]:
    """The descriptor of `open_inside`, for a while: what is open stays the same, whatever becomes of the way to it."""
    descriptor = open_inside(jail, path, make=make, kind=kind)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_inside(jail: Path, path: str, *, make: bool, kind: str) -> int:
    """A descriptor (O_PATH) for something in the jail, reached through directories only. Raises JailViewError.

    `make`: directories that are missing are made. The path may lead elsewhere by the time that the descriptor is used.

    Never through a symbolic link: it means another place outside the jail than inside, and root in the jail can make
    one wherever it likes, users wherever they may write.
    """
    here = os.open(jail, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    parts = [part for part in path.split("/") if part]
    for number, part in enumerate(parts, 1):
        at = "/" + "/".join(parts[:number])
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=here)
            there = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        except FileNotFoundError:
            raise JailViewError(
                f"the jail has no {kind} {path} to bind the pod's own to; it was populated by something else"
            ) from None
        except OSError as error:
            raise JailViewError(f"cannot make {at} in the jail: {error.strerror}") from error
        finally:
            os.close(here)
        here = there
        mode = os.fstat(here).st_mode
        directory = number < len(parts) or kind == "directory"
        if stat.S_ISDIR(mode) != directory or stat.S_ISLNK(mode):
            os.close(here)
            there_is = "symbolic link" if stat.S_ISLNK(mode) else "file" if directory else "directory"
            raise JailViewError(f"{at} is a {there_is} in the jail, so {path} cannot be there; move it away")
    return here


def homes_directory() -> Path | None:
    """Where the volume of homes is in this pod, below its name in the jail; None where homes are in the jail's own."""
    return Path(os.environ["HOMES"]) if os.environ.get("HOMES") else None


def make_home(jail: Path, home: str, uid: int, gid: int, root: Path | None = None) -> bool:
    """Make a home from /etc/skel, only for its owner. False where there is something of that name already.

    `root`: the one whose /etc/skel it is, if not the jail's. It appears whole: a program that looks meanwhile sees
    none. Raises JailViewError where the way to it is not made of directories: a symbolic link means another place
    outside the jail, where this runs, than inside. Where the way to the skeleton is not, the home is empty.
    """
    target = jail / home.lstrip("/")
    if os.path.lexists(target):
        return False
    with held(jail, str(Path(home).parent), make=True) as above:
        _make(above, target.name, root or jail, (uid, gid))
    return True


def _make(above: int, name: str, root: Path, owner: Owner) -> None:
    """All by open directories: whoever is root in the jail can put a link into the place of any of them meanwhile."""
    # No user gets in here: who owned a part of it already could put another's file where the next one is given away.
    closed = f".{name}.{os.getpid()}.new"
    try:
        os.mkdir(closed, 0o700, dir_fd=above)
        with _opened(closed, above) as place:
            os.mkdir("home", 0o700, dir_fd=place)
            with _opened("home", place) as home:
                _take_skeleton(root, home, owner)
                os.fchmod(home, 0o700)
                os.fchown(home, *owner)
            os.rename("home", name, src_dir_fd=place, dst_dir_fd=above)
    finally:
        shutil.rmtree(closed, ignore_errors=True, dir_fd=above)


@contextmanager
def _opened(name: str, directory: int, flags: int = _READ | os.O_DIRECTORY, mode: int = 0) -> Iterator[int]:
    descriptor = os.open(name, flags, mode, dir_fd=directory)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _take_skeleton(root: Path, home: int, owner: Owner) -> None:
    """Not by tar(1): it writes by whole paths, and so goes on outside the jail by a link that is put into one."""
    to_read = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    with (
        contextlib.suppress(JailViewError),
        held(root, SKELETON) as there,
        _opened(f"/proc/self/fd/{there}", there, to_read) as skeleton,
    ):
        _copy_all(skeleton, home, owner, _DEEPEST)


def _copy_all(source: int, target: int, owner: Owner, levels: int) -> None:
    """The links, files and directories in an open directory, of which so many levels are gone into."""
    for name in os.listdir(source):
        kind = stat.S_IFMT(os.stat(name, dir_fd=source, follow_symlinks=False).st_mode)
        if kind == stat.S_IFLNK:
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
            os.chown(name, *owner, dir_fd=target, follow_symlinks=False)
        elif kind in {stat.S_IFREG, stat.S_IFDIR}:
            with _opened(name, source, _READ) as found:
                _copy_one(found, target, name, owner, levels)


def _copy_one(found: int, target: int, name: str, owner: Owner, levels: int) -> None:
    """A file or directory as it is open: by its name there may be another one by now."""
    mode = os.fstat(found).st_mode
    if stat.S_ISDIR(mode) and levels > 0:
        os.mkdir(name, 0o700, dir_fd=target)
        with _opened(name, target) as inner:
            _copy_all(found, inner, owner, levels - 1)
            _give(inner, mode, owner)
    elif stat.S_ISREG(mode):
        with _opened(name, target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600) as copy:
            with open(found, "rb", closefd=False) as old, open(copy, "wb", closefd=False) as new:
                shutil.copyfileobj(old, new)
            _give(copy, mode, owner)


def _give(made: int, mode: int, owner: Owner) -> None:
    os.fchmod(made, mode & 0o777)
    os.fchown(made, *owner)
