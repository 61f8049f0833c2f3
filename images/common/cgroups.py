"""The container's own part of the machine's cgroups, which slurmd divides among jobs, and sshd among users.

Kubernetes gives a container a cgroup with limits, shows it that cgroup as the root of all (a cgroup namespace), and
mounts it read-only. With CAP_SYS_ADMIN the mount can be made writable, and nothing outside of the container is in
reach by it; some container runtimes mount it writable when they are told to. What is written there holds within the
limits that Kubernetes has set above.

    /                                   the container, with Kubernetes' limits
    /slurmd                             slurmd, the helper, and what kubelet starts in the container
    /system.slice/NODE_slurmstepd.scope all jobs, with the memory that the node has for them; Slurm's own name
    .../job_1/step_0/user/task_0        a task, made by slurmstepd

On a login node it is /sshd, and /users with one cgroup for each user (images/login/sshd.py).

The kernel wants processes in leaves only. Slurm could move slurmd itself (`IgnoreSystemd=yes`), but by its source 24.11
moves it again at each `scontrol reconfigure`, into a place that is no leaf any more (not tried). So all is made before
it starts, as systemd would (`INVOCATION_ID`; tests/machine).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.command import Runner
from images.common.mountinfo import MOUNTINFO, read_mounts

MOUNT: Final = Path("/sys/fs/cgroup")
_NEEDED: Final = ("cpuset", "cpu", "memory")

_ROUNDS: Final = 100
"""Looks for processes that were started meanwhile, by kubelet's probes for one."""


class CannotConfineError(Exception):
    """This machine lets the container divide nothing; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Subtree:
    """What was found."""

    how: str
    """By whom it was made writable: `remounted` or `runtime`."""
    swap: bool
    """Whether the kernel counts swap."""


def take_subtree(
    daemons: str,
    divided: str,
    memory: int | None,
    runner: Runner,
    *,
    mount: Path = MOUNT,
    proc: Path = Path("/proc/self"),
    is_read_only: Callable[[Path], bool] = lambda path: bool(os.statvfs(path).f_flag & os.ST_RDONLY),
) -> Subtree:
    """Make room below the container's own cgroup. Raises CannotConfineError.

    `daemons`: the cgroup for all that runs in the container now. `divided`: the one that can be divided further, and
    `memory`: the bytes that all in it may have together; None: only the container's own limit.
    """
    _expect_version_2(mount, proc, daemons)
    how = _make_writable(mount, runner, is_read_only)
    group = mount / divided
    try:
        _move_all(mount, mount / daemons)
        group.mkdir(parents=True, exist_ok=True)
        for directory in (mount, *reversed([path for path in group.parents if mount in path.parents]), group):
            (directory / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _NEEDED))
        (group / "memory.max").write_text("max" if memory is None else str(memory))
    except OSError as error:
        raise CannotConfineError(f"{error.filename or mount}: {error.strerror}") from error
    return Subtree(how=how, swap=(group / "memory.swap.max").exists())


def memory_limit(mount: Path = MOUNT) -> int | None:
    """Bytes of memory that Kubernetes gives the container; None where there is no limit, or no version 2 of cgroups."""
    try:
        text = (mount / "memory.max").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _expect_version_2(mount: Path, proc: Path, daemons: str) -> None:
    at = [mounted.filesystem for mounted in read_mounts(proc / MOUNTINFO.name) if mounted.point == str(mount)]
    if at[-1:] != ["cgroup2"]:
        raise CannotConfineError("the machine has version 1 of cgroups, or both versions")
    place = (proc / "cgroup").read_text(encoding="ascii").strip()
    if place not in {"0::/", f"0::/{daemons}"}:
        raise CannotConfineError(f"the container has no cgroup namespace: it is in {place}")
    missing = set(_NEEDED) - set((mount / "cgroup.controllers").read_text(encoding="ascii").split())
    if missing:
        raise CannotConfineError(f"the container's cgroup lacks {', '.join(sorted(missing))}")


def _make_writable(mount: Path, runner: Runner, is_read_only: Callable[[Path], bool]) -> str:
    if not is_read_only(mount):
        return "runtime"
    result = runner(["mount", "-o", "remount,bind,rw", str(mount)])
    if not result.ok:
        raise CannotConfineError(f"{mount} is read-only and cannot be mounted otherwise: {result.message}")
    return "remounted"


def _move_all(top: Path, leaf: Path) -> None:
    leaf.mkdir(exist_ok=True)
    for _ in range(_ROUNDS):
        pids = (top / "cgroup.procs").read_text(encoding="ascii").split()
        if not pids:
            return
        for pid in pids:
            try:
                (leaf / "cgroup.procs").write_text(pid)
            except ProcessLookupError:  # it has ended
                continue
    raise CannotConfineError(f"processes keep coming into {top}: {' '.join(pids)}")
