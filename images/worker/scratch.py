"""Scratch: /tmp of a worker on a volume of its own, where the pool says so (`SCRATCH`).

A directory of the machine outlives pods, and any volume of a pod its containers. What lies there when slurmd starts is
of jobs that have ended with the container before, so it goes; also when a pod leaves, as the next one with its name may
be on another machine.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from images.common.boundary import keep_only
from images.common.files import remove_tree
from images.common.mountinfo import restrict
from images.common.process import CannotGoOnError
from images.common.slurm_node import NodeConf

TMP: Final = Path("/tmp")

OF_THE_MACHINE: Final = "host_path"
"""What `SCRATCH` says of a directory of the machine; else `storage_class`."""

LEAST_SHARE: Final = 0.9
"""Of the size that the stack file says: file systems keep some of a disk for themselves."""

_MEBIBYTE: Final = 2**20
_OF_THE_FILE_SYSTEM: Final = "lost+found"
_REMOVES: Final = ("DAC_OVERRIDE", "FOWNER")


def prepare(
    kind: str,
    conf: NodeConf,
    log: Callable[[str], None],
    *,
    directory: Path = TMP,
    size: Callable[[Path], int] | None = None,
    in_background: Callable[[Path, Callable[[str], None]], None] | None = None,
) -> NodeConf:
    """Empty it. Returns the node's description with the size that it really has (`TmpDisk=`, MiB).

    `kind`: `SCRATCH`, empty where there is none, and then nothing is done. Raises CannotGoOnError where it is smaller
    than the stack file says: most likely the machine's own disk, as nothing is mounted there.
    """
    if not kind or conf.disk_mib is None:
        return conf
    says, has = conf.disk_mib, (size or _mebibytes)(directory)
    if has < LEAST_SHARE * says:
        raise CannotGoOnError(
            f"the pool's scratch has {has} MiB on this machine, and scratch.size says {says} MiB: "
            + (
                "mount the disk at scratch.host_path"
                if kind == OF_THE_MACHINE
                else "ask the storage class for volumes as large as it is asked for"
            )
            + ", or write a smaller size"
        )
    left = _set_aside(directory, log)
    if left is not None:
        (in_background or _remove_in_background)(left, log)
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
        left = _set_aside(directory, log)
        if left is not None:
            _remove_now(left, log)


def _mebibytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_blocks * found.f_frsize // _MEBIBYTE


def _set_aside(directory: Path, log: Callable[[str], None]) -> Path | None:
    """Move all that is there into one directory of root's, at once however much it is; None where nothing is left.

    No link is followed: users have made what is there. Without room for another directory it is removed on the spot.
    """
    names = [path.name for path in directory.iterdir() if path.name != _OF_THE_FILE_SYSTEM]
    if not names:
        return None
    aside = directory / f".left-{secrets.token_hex(8)}"
    try:
        aside.mkdir(mode=0o700)
    except OSError as error:
        log(f"{directory}: {error.strerror}; removing what earlier jobs have left first")
        for name in names:
            _remove_now(directory / name, log)
        return None
    for name in names:
        try:
            (directory / name).rename(aside / name)
        except OSError as error:
            # An epilog removes it just now, or the container runtime has mounted something there.
            if error.errno not in {errno.ENOENT, errno.EBUSY}:
                log(f"cannot remove what earlier jobs have left in the scratch: {error}")
    return aside


def _remove_now(path: Path, log: Callable[[str], None]) -> None:
    try:
        remove_tree(path)
    except OSError as error:
        log(f"cannot remove what earlier jobs have left in the scratch: {error}")


def _remove_in_background(directory: Path, log: Callable[[str], None]) -> None:
    """In a process of its own with no more rights than that takes: a million files must not keep the node away."""
    if os.fork() != 0:
        return
    try:
        os.setsid()
        keep_only(*_REMOVES)
        remove_tree(directory)
        log("removed what earlier jobs have left in the scratch")
    except BaseException as error:  # noqa: BLE001  (this process must not go on as the daemon's start)
        log(f"cannot remove what earlier jobs have left in the scratch: {type(error).__name__}: {error}")
    finally:
        os._exit(0)
