"""Scratch: /tmp of a worker on a volume of its own, where the pool says so (`SCRATCH`).

A directory of the machine outlives pods, and any volume of a pod its containers. What lies there when slurmd starts is
of jobs that have ended with the container before, so it goes; also when a pod leaves, as the next one with its name may
be on another machine.
"""

from __future__ import annotations

import errno
import os
import secrets
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from images.common.mountinfo import restrict
from images.common.process import CannotGoOnError
from images.common.slurm_node import NodeConf

TMP: Final = Path("/tmp")

OF_THE_MACHINE: Final = "host_path"
"""What `SCRATCH` says of a directory of the machine; else `storage_class`."""

LEAST_SHARE: Final = 0.9
"""Of the size that the stack file says: file systems keep some of a disk for themselves."""

_MEBIBYTE: Final = 2**20
_REMOVE: Final = ("-exec", "rm", "-rf", "--one-file-system", "--", "{}", "+")
"""For find(1): users can have made more names than one program takes. rm follows no link; it complains in the log."""

_NO_MORE_RIGHTS: Final = ("/usr/bin/setpriv", "--inh-caps=-all", "--bounding-set=-all,+dac_override,+fowner")
"""Jobs run beside it."""

_OF_THE_FILE_SYSTEM: Final = "lost+found"


def prepare(
    kind: str,
    conf: NodeConf,
    log: Callable[[str], None],
    *,
    directory: Path = TMP,
    size: Callable[[Path], int] | None = None,
    remove: Callable[[Sequence[str]], object] | None = None,
) -> NodeConf:
    """Empty it. Returns the node's description with the size that it really has (`TmpDisk=`, MiB).

    `kind`: `SCRATCH`, empty where there is none; then /tmp is on the machine's disk, with a limit. Raises
    CannotGoOnError where it is smaller than the stack file says: most likely the machine's own disk, as nothing is
    mounted there.
    """
    if conf.disk_mib is None:
        return conf
    says, has = conf.disk_mib, (size or _mebibytes)(directory)
    if not kind:
        return replace(conf, disk_mib=min(says, has))
    if has < LEAST_SHARE * says:
        raise CannotGoOnError(
            f"the pool's scratch has {has} MiB on this machine, and scratch.size says {says} MiB: mount the disk at "
            "scratch.host_path, look at what its storage class makes, or write a smaller size"
        )
    if left := _set_aside(directory, log):
        log("removing what earlier jobs have left in the scratch")
        (remove or _begin_to_remove)(left)
    return replace(conf, disk_mib=min(says, has))


def forbid_programs_of_others(kind: str, directory: Path = TMP) -> None:
    """Nothing on it is run with its owner's rights, and nothing is a device, whoever has put it there.

    A disk is no place that we have made: what it is mounted with is the machine's choice. Each job's own directory is
    shown to it by a mount that is made of this one, and so is as strict. Takes CAP_SYS_ADMIN; raises CannotGoOnError.
    """
    if kind:
        try:
            restrict(directory)
        except OSError as error:
            raise CannotGoOnError(f"{directory}: cannot be mounted nosuid,nodev: {error.strerror}") from error


def give_back(kind: str, log: Callable[[str], None], directory: Path = TMP) -> None:
    """Leave nothing on the machine. For a pod that ends, when its last job has."""
    if kind == OF_THE_MACHINE and (left := _set_aside(directory, log)):
        subprocess.run(left, stdin=subprocess.DEVNULL, check=False)


def _mebibytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize // _MEBIBYTE


def _set_aside(directory: Path, log: Callable[[str], None]) -> list[str]:
    """Take all that is there out of the way at once, however much it is and however full the disk; what removes it.

    No link is followed: users have made what is there.
    """
    left, name = 0, f".left-{secrets.token_hex(8)}-"
    for number, path in enumerate(path for path in list(directory.iterdir()) if path.name != _OF_THE_FILE_SYSTEM):
        try:
            path.rename(directory / f"{name}{number}")
        except OSError as error:
            # An epilog removes it just now, or the container runtime has mounted something there.
            if error.errno not in {errno.ENOENT, errno.EBUSY}:
                log(f"cannot remove what earlier jobs have left in the scratch: {error}")
        else:
            left += 1
    if not left:
        return []
    return ["find", str(directory), "-mindepth", "1", "-maxdepth", "1", "-name", f"{name}*", *_REMOVE]


def _begin_to_remove(left: Sequence[str]) -> None:
    """In a process of its own: a million files must not keep the node away."""
    subprocess.Popen([*_NO_MORE_RIGHTS, *left], stdin=subprocess.DEVNULL, start_new_session=True)
