"""What keeps users away from what is the pod's: owners and modes, a root that nobody writes, capabilities given up.

Kubernetes makes an emptyDir for everybody to write, without the sticky bit. So each program that shares directories
with users puts them right before it shows them anything.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from images.common.command import Runner
from images.common.mountinfo import expect_done, libc
from images.common.process import CannotGoOnError

RUN_SLURM: Final = Path("/run/slurm")
"""Where all Slurm commands of the pod and of the jail find their configuration: who writes here runs code as others."""

_NUMBERS: Final = {
    "CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7, "SYS_CHROOT": 18,
    "SYS_ADMIN": 21,
}  # fmt: skip
_SYS_ADMIN: Final = _NUMBERS["SYS_ADMIN"]
_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_CAPABILITY_VERSION_3: Final = 0x20080522
_EFFECTIVE, _PERMITTED, _INHERITABLE = 0, 1, 2
"""Of the first 32 capabilities: three words, followed by three for the others (capset(2))."""

_LAST_WORDS: Final = Path("/dev/termination-log")
"""Kubelet lets everybody write there, and it lies on the machine's own disk."""


def own_directory(directory: Path, uid: int = 0, gid: int = 0) -> None:
    """Make a directory, or take one that is there: only its owner may write in it. A link in its place goes."""
    if directory.is_symlink() or directory.is_file():
        directory.unlink()
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o755)
    os.chown(directory, uid, gid)


def forget_configuration(directory: Path, link: Path = RUN_SLURM / "conf") -> None:
    """Remove the copy of Slurm's configuration that an earlier container of this pod has left.

    Slurm's commands take it before any other, with the plugins that it names. It is fetched anew.
    """
    if link.is_symlink():
        link.unlink()
    for place in (directory, link):
        if place.is_dir():
            for path in place.iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def settle_shared() -> None:
    """Directories for everybody: nobody may delete another's files. And nobody but root writes our last words."""
    for directory in (Path("/tmp"), Path("/dev/shm")):
        directory.chmod(0o1777)
    if _LAST_WORDS.exists():
        _LAST_WORDS.chmod(0o600)


def seal_root(runner: Runner) -> None:
    """Make the root file system read-only but for /run, /dev and the volumes. Raises CannotGoOnError.

    Kubelet starts programs of this container with all its capabilities, as hooks and probes. Nobody who takes over the
    daemon, which has given up SYS_ADMIN, may put others in their place.
    """
    for argv in (["mount", "--rbind", "/run", "/run"], ["mount", "-o", "remount,bind,ro", "/"]):
        result = runner(argv)
        if not result.ok:
            raise CannotGoOnError(f"{' '.join(argv)}: {result.message} (the container needs CAP_SYS_ADMIN)")


def protect_cgroups(jail: Path, runner: Runner) -> None:
    """Show the cgroups read-only in the jail, also where the runtime mounts them to be written. Raises CannotGoOnError.

    Root in the jail would take its job out of all limits.
    """
    shown = jail / "sys/fs/cgroup"
    if not shown.is_mount():
        return
    result = runner(["mount", "-o", "remount,bind,ro", str(shown)])
    if not result.ok:
        raise CannotGoOnError(f"{shown} cannot be made read-only: {result.message}")


def give_up_set_up() -> None:
    """Give up SYS_ADMIN for good, in this process and what it starts, where it has that at all. Raises OSError.

    From here on the pod's start may run programs of Slurm: they load what a configuration names, and slurmd's copy
    of it lies where a daemon writes that has given it up too.
    """
    caps = _Capabilities()
    if caps.sets[_PERMITTED] >> _SYS_ADMIN & 1:
        caps.drop([_SYS_ADMIN])


def keep_only(*names: str) -> None:
    """Give up all capabilities but these, for good, in this process and what it starts. Raises OSError, KeyError."""
    kept = {_NUMBERS[name] for name in names}
    _Capabilities().drop([number for number in range(64) if number not in kept])


class _Capabilities:
    """Those of this thread, by capget(2) and capset(2)."""

    def __init__(self) -> None:
        self._libc = libc()
        self._header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
        self.sets = (ctypes.c_uint32 * 6)()
        expect_done(self._libc.capget(self._header, self.sets), "give up capabilities")

    def drop(self, numbers: Sequence[int]) -> None:
        """From all sets; from the bounding set first, which takes CAP_SETPCAP."""
        for number in numbers:
            if self._libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) == 1:
                expect_done(self._libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0), "give up capabilities")
            for index in (_EFFECTIVE, _PERMITTED, _INHERITABLE):
                self.sets[3 * (number // 32) + index] &= ~(1 << number % 32)
        expect_done(self._libc.capset(self._header, self.sets), "give up capabilities")


def without_set_up(argv: Sequence[str], pid: int) -> list[str]:
    """The command line for a daemon that must not have what only the set-up of its pod needs.

    PID 1 becomes an init that reaps, as the other containers have it from the beginning (components/kit). Here that
    would keep the capability, and then nothing of ours could write into its log any more: that takes as much as it has.
    """
    init = ["/usr/bin/tini", "--"] if pid == 1 else []
    return ["/usr/bin/setpriv", "--inh-caps=-all", "--bounding-set=-sys_admin", *init, *argv]
