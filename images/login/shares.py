"""What one user gets of a login node: a cgroup for all of the user's processes there.

Without it, one user's program that needs all memory has others' sessions ended: by the kernel, which ends the largest
process, or by kubelet, which on machines with version 2 of cgroups wants the whole container ended with it.

    /users        all users together: what the login node has but an eighth (of a small one more), which is for sshd
    /users/1000   one user; each has the same weight when they compete for CPUs (images/login/native/share.c)
    /connections  those who are not logged in yet (images/login/connection.sh): three quarters of that eighth
    /sshd         what listens, and what kubelet starts in the container

Together they have what there is and no more, so that each meets its own limit before the container's. In /connections
the kernel ends the largest process, which is one connection's. One takes 3.5 MiB there until it is a session, of which
1.8 MiB stay counted (measured): beyond some 400 sessions of a login node with 8 GiB nobody else gets in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from images.common.cgroups import CannotConfineError, Subtree, make_leaf, memory_limit, take_subtree
from images.common.command import Runner
from images.common.files import write_atomically

DAEMONS: Final = "sshd"
USERS: Final = "users"
CONNECTIONS: Final = "connections"
"""Its name is in connection.sh, too."""

FILE: Final = Path("/run/slurmstack/shares")
"""A line for each file of a user's cgroup, with what is to be in it. Where it is missing, there are no cgroups."""

_SEVERAL_LOGINS: Final = 160 * 2**20
"""Enough for some thirty at once."""

_PERIOD_US: Final = 100_000
"""Of `cpu.max`: the kernel's own default."""

TakeSubtree = Callable[[str, str, int | None, Runner], Subtree]
MakeLeaf = Callable[[str, int | None], None]


def set_up(
    limits: Mapping[str, int],
    runner: Runner,
    log: Callable[[str], None],
    *,
    take: TakeSubtree = take_subtree,
    make: MakeLeaf = make_leaf,
    limit: Callable[[], int | None] = memory_limit,
    file: Path = FILE,
) -> None:
    """Have each user's sessions share a cgroup, where the machine lets the pod make some.

    `total_memory` in bytes, by default half of what there is for all; `total_cpus` in thousandths, by default any.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    own = limit()
    memory, connections = (None, None) if own is None else (own - _for_sshd(own), _for_sshd(own) * 3 // 4)
    try:
        take(DAEMONS, USERS, memory, runner)
        make(CONNECTIONS, connections)
    except CannotConfineError as error:
        log(f"users share this login node's CPU and memory as they come: {error}")
        return
    write_atomically(file, "".join(f"{name} {value}\n" for name, value in _shares(limits, memory).items()))


def _for_sshd(own: int) -> int:
    return max(own // 8, min(_SEVERAL_LOGINS, own // 4))


def _shares(limits: Mapping[str, int], memory: int | None) -> dict[str, str]:
    total = limits.get("total_memory") or (None if memory is None else memory // 2)
    cpus = limits.get("total_cpus")
    return {
        **({"memory.max": str(total)} if total else {}),
        **({"cpu.max": f"{cpus * _PERIOD_US // 1000} {_PERIOD_US}"} if cpus else {}),
    }
