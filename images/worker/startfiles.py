"""Where users' start-up files run: `sbatch --export=NONE` has slurmd ask the user's login shell for its environment.

That is before there is a step of the job, and in a process of slurmd's (images/common/native/startfiles.c). Whatever
~/.profile starts would be beside slurmd: with all of the node's cores, memory and devices, and for as long as it likes.
So it has a cgroup of its own, which ends with it. Not among those of jobs: what memory is there may be promised to
them, and the kernel would end a job. Where the node has no cgroups, nothing is held.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from images.common.cgroups import enable, memory_limit
from images.common.kept_memory import LEAST, SCOPE, kept_bytes
from images.worker import devices

PLACE: Final = "startfiles"
"""The cgroup of all of them, below the container's."""

LEAST_MEMORY: Final = 32 * 2**20
"""Bytes for all of them, where little is kept for slurmd."""

ONE_USER: Final = 0.75
"""Of the memory for all of them; the rest is there for others, whatever that user does."""

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

    def hold(self, connection: int, pid: int, user: str) -> list[str]:
        """Make a cgroup for a process. Returns the file that moves it there, or nothing where the node has no cgroups.

        `user`: any name. Raises OSError: then the process must not go on.
        """
        scope = next(iter(self._mount.glob(SCOPE)), None)
        if scope is None:
            return []
        self.tidy()
        group = self._place(scope, user) / str(pid)
        group.mkdir(exist_ok=True)
        self._leaving.discard(group)  # another process had this number before
        self._held[connection] = group
        for name, value in LIMITS.items():
            if (group / name).exists():
                (group / name).write_text(value)
        self._put_devices(group)
        return [str(group / "cgroup.procs")]

    def _place(self, scope: Path, user: str) -> Path:
        """Where a user's are: half of the memory that jobs are not given, and that is kept for slurmd, is for them all.

        What is kept of the memory of those that have ended is in the user's own part, too.
        """
        place = self._mount / PLACE
        place.mkdir(exist_ok=True)
        enable(place)
        own = place / of_user(user)
        own.mkdir(exist_ok=True)
        enable(own)
        whole, of_jobs = memory_limit(self._mount), memory_limit(scope)
        if whole is not None and of_jobs is not None:
            most = max(LEAST_MEMORY, (whole - of_jobs) // 2)
            (place / "memory.max").write_text(str(most))
            (own / "memory.max").write_text(str(int(most * ONE_USER)))
        return own

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
        for group in self._mount.glob(f"{PLACE}/*/[0-9]*/"):
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
        for own in self._mount.glob(f"{PLACE}/*/"):
            if kept_bytes(own) < LEAST:
                with contextlib.suppress(OSError):  # somebody's start-up files run
                    own.rmdir()


def of_user(user: str) -> str:
    """The name of a user's cgroup, for any name of a user."""
    return hashlib.sha256(user.encode(errors="surrogateescape")).hexdigest()[:16]


def _no_devices(group: Path) -> None:
    """Only devices that no job is given: memory, terminals."""
    if devices.why_not():
        return  # jobs are held to no devices here, either
    devices.attach_for_good(group, devices.ORDINARY)
