"""Memory of jobs that have ended, which somebody keeps: where it is seen, and how much it is.

The kernel counts memory in files (`memfd`, /dev/shm), queues and semaphores for the job that made it, also when another
job keeps it by an open file. Once the cgroup of the first one is removed, it counts for nobody but all jobs together.
So the cgroup of a job stays as long as it has such memory (images/worker/kept_memory.py). In it are two empty ones:

    job_17/of_10001     whose job it is; Slurm cannot remove the job's cgroup while this is there
    job_17/ended        the job has ended, and what is counted here is kept by somebody else
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.lines import lines_in, text_of

SCOPE: Final = "system.slice/*_slurmstepd.scope"
"""The cgroup of all jobs, by Slurm's own name, where cgroups are mounted."""

ENDED: Final = "ended"

LEAST: Final = 256 * 1024
"""Bytes that are not spoken of: the kernel counts in batches of 64 pages a CPU."""

CLOSING_SECONDS: Final = 400.0
"""So long TCP connections of ended jobs are nobody's fault. The kernel sends what is left in them after all processes
have gone, and tries for some 100 s where the other machine is lost: each other node of its jobs has such ones. Where
the other end takes nothing it gives up when a pause has grown to 120 s, after less than 360 s (330 s, seen with Linux
6.18): else any user could have nodes drained by that."""

_OF_KERNEL: Final = 2**20
"""Bytes of the kernel's own for a cgroup that is empty: what it keeps of the cgroups of steps, and of cached files."""

_OF_DYING: Final = 8 * 1024
"""The same for each cgroup of a step or a task that was removed, and that has cached files yet. Linux 6.1 has 3 KiB on
a machine of one NUMA node, and the rest is for more of them. A step of 128 ranks that write leaves 131 of these."""

PROC: Final = Path("/proc")
_USER: Final = re.compile(r"^Uid:\s+(\d+)", re.MULTILINE)
_LOCKED: Final = re.compile(r"^VmLck:\s+(\d+) kB", re.MULTILINE)

_OWNER: Final = re.compile(r"of_(\d+)")


@dataclass(frozen=True, kw_only=True)
class JobGroup:
    """The cgroup of a job."""

    path: Path
    uid: int
    ended: bool


def owner_mark(uid: int | str) -> str:
    """The name of the cgroup that says whose job it is."""
    return f"of_{uid}"


def owner_of(group: Path) -> int | None:
    """Whose the cgroup of a job is; None where it has no mark."""
    marks = (_OWNER.fullmatch(mark.name) for mark in group.glob(owner_mark("*")))
    return next((int(match[1]) for match in marks if match), None)


def job_groups(mount: Path) -> list[JobGroup]:
    """The cgroups of jobs whose user is known. `mount`: where cgroups are."""
    return [
        JobGroup(path=mark.parent, uid=int(match[1]), ended=(mark.parent / ENDED).is_dir())
        for mark in mount.glob(f"{SCOPE}/job_*/{owner_mark('*')}")
        if (match := _OWNER.fullmatch(mark.name))
    ]


def has_processes(group: Path) -> bool:
    """Whether a process is in a cgroup, or in one below it."""
    with contextlib.suppress(OSError):
        return "populated 1" in (group / "cgroup.events").read_text(encoding="ascii")
    return False


def kept_bytes(group: Path) -> int:
    """Bytes that a cgroup without processes counts, and that the kernel cannot take back by itself: no cached files."""
    stat = _table(group / "memory.stat")
    # `kernel` (Linux 5.18) counts pipes and what waits in sockets, too.
    kernel = (
        stat["kernel"] - stat["slab_reclaimable"] - stat["percpu"] if "kernel" in stat else stat["slab_unreclaimable"]
    )
    # Cached files cannot be taken back where another job has locked them (mlock). Shared memory may be locked, too.
    pages = max(stat["shmem"], stat["inactive_anon"] + stat["active_anon"] + stat["unevictable"])
    of_kernel = _OF_KERNEL + _OF_DYING * _table(group / "cgroup.stat")["nr_dying_descendants"]
    return pages + stat["sock"] + max(0, kernel - of_kernel)


def locked_bytes(group: Path) -> int:
    """Bytes of these in cached files that somebody has locked: perhaps another user, as many read the same files."""
    stat = _table(group / "memory.stat")
    return min(
        stat["unevictable"], max(0, stat["inactive_anon"] + stat["active_anon"] + stat["unevictable"] - stat["shmem"])
    )


def socket_bytes(group: Path) -> int:
    """Bytes of these in TCP connections: perhaps nobody has them open, and the other end takes nothing."""
    return _table(group / "memory.stat")["sock"]


def locked_by(proc: Path = PROC) -> Counter[int]:
    """Bytes that users' processes have locked (mlock), by the user's number."""
    found = Counter[int]()
    for status in proc.glob("[0-9]*/status"):
        with contextlib.suppress(OSError):  # it has just ended
            text = text_of(status)
            user, size = _USER.search(text), _LOCKED.search(text)
            if user and size:
                found[int(user[1])] += int(size[1]) * 1024
    return found


def _table(file: Path) -> Counter[str]:
    """Nothing of a cgroup that has just gone."""
    try:
        lines = lines_in(file.read_text(encoding="ascii"))
    except OSError:
        return Counter()
    return Counter({name: int(number) for name, _, number in (line.partition(" ") for line in lines)})


@dataclass(frozen=True, kw_only=True)
class Unowned:
    """What ended jobs have left whose users have no job here any more: who keeps it is not known."""

    kept: int = 0
    """Bytes."""
    sockets: int = 0
    """Of these in TCP connections: the kernel itself keeps those that nobody has open, until their data have gone."""
    jobs: tuple[str, ...] = ()
    """`job 17 of user 10001`, by what they have left, the most first."""


def unowned(mount: Path, proc: Path = PROC) -> Unowned:
    """What nobody pays for. Not what may be files of others that a process has locked: `mlockall` is no fault."""
    groups = job_groups(mount)
    here = {group.uid for group in groups if not group.ended and has_processes(group.path)}
    sized = [(kept_bytes(group.path), group) for group in groups if group.ended and group.uid not in here]
    found = sorted(((size, group) for size, group in sized if size >= LEAST), key=lambda each: -each[0])
    kept, locked = sum(size for size, _ in found), sum(locked_bytes(group.path) for _, group in found)
    return Unowned(
        kept=kept - (min(locked, locked_by(proc).total()) if locked else 0),
        sockets=sum(socket_bytes(group.path) for _, group in found),
        jobs=tuple(f"{group.path.name.replace('_', ' ')} of user {group.uid}" for _, group in found),
    )
