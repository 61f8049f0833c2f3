"""Volumes of the local cluster on small disks of their own, which a test may fill."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from local import namespaces, nodes
from slurm.local_cluster import local_directory


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A file system on a file of this machine."""

    directory: Path

    def fill(self, share: float) -> None:
        """Use this share of the space, as `df` counts, for a file that `empty` removes."""
        size, used = (
            int(_run("df", f"--output={column}", "-B1", str(self.directory)).split()[-1]) for column in ("size", "used")
        )
        _run("fallocate", "-l", str(int(size * share) - used), str(self._file))

    def empty(self) -> None:
        self._file.unlink(missing_ok=True)

    @property
    def _file(self) -> Path:
        return self.directory / "filled-by-a-test"


@contextmanager
def small_volumes(namespace: str, sizes: Mapping[str, str], at: Path) -> Iterator[dict[str, Disk]]:
    """Let these volumes (such as `jail`) of a cluster that is not there yet lie on disks of these sizes (`64M`).

    All machines of the local cluster see them. `at`: an empty directory for the disks' files.
    """
    with ExitStack() as undo:
        disks = {}
        for volume, size in sizes.items():
            directory = local_directory() / "volumes" / namespace / volume
            directory.mkdir(parents=True, exist_ok=True)
            file = at / f"{volume}.disk"
            _run("truncate", "--size", size, str(file))
            # Without space that only root may use: all that is free is free for Slurm and for users.
            _run("mkfs.ext4", "-q", "-m", "0", str(file))
            device = _run("losetup", "--find", "--show", str(file)).strip()
            undo.callback(_run, "losetup", "--detach", device)
            for enter in ([], *(namespaces.enter(name, with_mounts=True) for name in _machines())):
                _run(*enter, "mount", device, str(directory))
                undo.callback(_run, *enter, "umount", "--lazy", str(directory))
            (directory / "lost+found").rmdir()
            disks[volume] = Disk(directory=directory)
        yield disks


def _machines() -> list[str]:
    return [name for name in nodes.names(8) if namespaces.exists(name, with_mounts=True)]


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
