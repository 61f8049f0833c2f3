"""Where users' start-up files run: `sbatch --export=NONE` has slurmd ask the user's login shell for its environment.

That is before there is a step of the job, and in a process of slurmd's (images/common/native/startfiles.c). Whatever
~/.profile starts would be beside slurmd: with all of the node's cores, memory and devices, and for as long as it likes.
So it has a cgroup of its own, which ends with it. Not among those of jobs: what memory is there may be promised to
them, and the kernel would end a job. Where the node has no cgroups, nothing is held.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.cgroups import enable, memory_limit
from images.worker import devices

SCOPE: Final = "system.slice/*_slurmstepd.scope"
"""The cgroup of all jobs, by Slurm's own name."""

PLACE: Final = "startfiles"
"""The cgroup of all of them, below the container's."""

LEAST_MEMORY: Final = 32 * 2**20
"""Bytes for all of them, where little is kept for slurmd."""

LIMITS: Final = {"memory.max": str(256 * 2**20), "pids.max": "256", "cpu.max": "100000 100000"}
"""Of one user's start-up files; one CPU. An environment of modules takes a tenth of that. slurmd waits for two minutes
at most."""


class StartFiles:
    """The cgroups of processes that run start-up files, by the number of who asked for one."""

    def __init__(self, mount: Path, put_devices: Callable[[Path], None] | None = None) -> None:
        """`mount`: where cgroups are."""
        self._mount = mount
        self._put_devices = put_devices or _no_devices
        self._held: dict[int, Path] = {}
        self._leaving: set[Path] = set()

    def hold(self, connection: int, pid: int) -> list[str]:
        """Make a cgroup for a process. Returns the file that moves it there, or nothing where the node has no cgroups.

        Raises OSError: then the process must not go on.
        """
        scope = next(iter(self._mount.glob(SCOPE)), None)
        if scope is None:
            return []
        self.tidy()
        group = self._place(scope) / str(pid)
        group.mkdir(exist_ok=True)
        self._leaving.discard(group)  # another process had this number before
        self._held[connection] = group
        for name, value in LIMITS.items():
            if (group / name).exists():
                (group / name).write_text(value)
        self._put_devices(group)
        return [str(group / "cgroup.procs")]

    def _place(self, scope: Path) -> Path:
        """Where they are: half of the memory that jobs are not given, and that is kept for slurmd, is for them all."""
        place = self._mount / PLACE
        place.mkdir(exist_ok=True)
        enable(place)
        whole, of_jobs = memory_limit(self._mount), memory_limit(scope)
        if whole is not None and of_jobs is not None:
            (place / "memory.max").write_text(str(max(LEAST_MEMORY, (whole - of_jobs) // 2)))
        return place

    def release(self, connection: int) -> None:
        """End all that has been started there."""
        group = self._held.pop(connection, None)
        if group is not None:
            with contextlib.suppress(OSError):
                (group / "cgroup.kill").write_text("1")
            self._leaving.add(group)
            self.tidy()

    def forget_those_before(self) -> None:
        """End what an earlier warden has held: nobody has a connection for it any more."""
        for group in self._mount.glob(f"{PLACE}/[0-9]*"):
            with contextlib.suppress(OSError):
                (group / "cgroup.kill").write_text("1")
            self._leaving.add(group)
        self.tidy()

    def tidy(self) -> None:
        """Remove what is empty. The kernel takes a moment to end processes: the rest goes with the next request."""
        for group in list(self._leaving):
            try:
                group.rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                continue
            self._leaving.discard(group)


def _no_devices(group: Path) -> None:
    """Only devices that no job is given: memory, terminals."""
    if devices.why_not():
        return  # jobs are held to no devices here, either
    devices.attach_for_good(group, devices.ORDINARY)
