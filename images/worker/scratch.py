"""Scratch: /tmp of a worker on a volume of its own, where the pool says so (`SCRATCH`).

A directory of the machine outlives pods, and any volume of a pod its containers. What lies there when slurmd starts is
of jobs that have ended with the container before, so it goes; also when a pod leaves, as the next one with its name may
be on another machine.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from images.common.mountinfo import mount_points, restrict
from images.common.process import CannotGoOnError
from images.common.slurm_node import NodeConf

TMP: Final = Path("/tmp")

OF_THE_MACHINE: Final = "host_path"
"""What `SCRATCH` says of a directory of the machine; else `storage_class`."""

LEAST_SHARE: Final = 0.9
"""Of the size that the stack file says: file systems keep some of a disk for themselves."""

_OF_THE_FILE_SYSTEM: Final = "lost+found"
_MEBIBYTE: Final = 2**20


def prepare(
    kind: str,
    conf: NodeConf,
    log: Callable[[str], None],
    *,
    directory: Path = TMP,
    size: Callable[[Path], int] | None = None,
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
    _empty(directory, log)
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
    if kind == OF_THE_MACHINE:
        _empty(directory, log)


def _mebibytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize // _MEBIBYTE


def _empty(directory: Path, log: Callable[[str], None]) -> None:
    """Remove all that is there, but where the container runtime has mounted something: that is the machine's.

    find(1) and rm(1) follow no link: users have made what is there. An epilog may remove something of it just now: that
    is not an error.
    """
    # For rm, neither its arguments nor what is bound from the same disk are another file system.
    mounted = [Path(point).relative_to(directory) for point in mount_points() if Path(point).is_relative_to(directory)]
    kept = {_OF_THE_FILE_SYSTEM, *(path.parts[0] for path in mounted if path.parts)}
    if any(path.name not in kept for path in directory.iterdir()):
        found = os.statvfs(directory)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize // _MEBIBYTE
        log(
            "removing what earlier jobs have left in the scratch, which is waited for: its disk has "
            f"{found.f_files - found.f_ffree} files and {used} MiB"
        )
        but = (word for name in sorted(kept) for word in ("-not", "-name", name))
        what = ["-mindepth", "1", "-maxdepth", "1", *but]
        remove = ["-exec", "rm", "-rf", "--one-file-system", "--", "{}", "+"]
        subprocess.run(["find", str(directory), *what, *remove], stdin=subprocess.DEVNULL, check=False)
