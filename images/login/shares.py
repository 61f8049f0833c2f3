"""What one user gets of a login node: a cgroup for all of the user's processes there.

Without it, one user's program that needs all memory has others' sessions ended: by the kernel, which ends the largest
process, or by kubelet, which on machines with version 2 of cgroups wants the whole container ended with it.

    /users        all users together: what the login node has but a sixteenth, which is for sshd
    /users/1000   one user; each has the same weight when they compete for CPUs (images/login/native/share.c)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from images.common.cgroups import CannotConfineError, Subtree, memory_limit, take_subtree
from images.common.command import Runner
from images.common.files import write_atomically

DAEMONS: Final = "sshd"
USERS: Final = "users"
FILE: Final = Path("/run/slurmstack/shares")
"""A line for each file of a user's cgroup, with what is to be in it. Where it is missing, there are no cgroups."""

_KEPT: Final = 16
_PERIOD_US: Final = 100_000
"""Of `cpu.max`: the kernel's own default."""

TakeSubtree = Callable[[str, str, int | None, Runner], Subtree]


def set_up(
    limits: Mapping[str, int],
    runner: Runner,
    log: Callable[[str], None],
    *,
    take: TakeSubtree = take_subtree,
    limit: Callable[[], int | None] = memory_limit,
    file: Path = FILE,
) -> None:
    """Have each user's sessions share a cgroup, where the machine lets the pod make some.

    `total_memory` in bytes, by default half of what there is for all; `total_cpus` in thousandths, by default any.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    own = limit()
    memory = None if own is None else own - own // _KEPT
    try:
        take(DAEMONS, USERS, memory, runner)
    except CannotConfineError as error:
        log(f"users share this login node's CPU and memory as they come: {error}")
        return
    write_atomically(file, "".join(f"{name} {value}\n" for name, value in _shares(limits, memory).items()))


def _shares(limits: Mapping[str, int], memory: int | None) -> dict[str, str]:
    total = limits.get("total_memory") or (None if memory is None else memory // 2)
    cpus = limits.get("total_cpus")
    return {
        **({"memory.max": str(total)} if total else {}),
        **({"cpu.max": f"{cpus * _PERIOD_US // 1000} {_PERIOD_US}"} if cpus else {}),
    }
