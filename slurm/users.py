"""Accounts as the program in the jail reads them, and as the daemons outside the jail look them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from config.base import parse_bytes, parse_cpus
from config.cluster import ClusterConfig
from config.sections.services import UserLimits
from config.sections.users import Group, User

FILES: Final = ("passwd", "group")
"""The two files beside slurm.conf that libnss-extrausers reads in the pods of the daemons."""

EXTRAUSERS: Final = "/var/lib/extrausers"
"""Where it reads them. The images link files of this directory to where the users of their role are
(images/common/install.py); workers without the jail have the published ones mounted over it."""


def accounts(users: Mapping[str, User], *, extra_keys: Sequence[str]) -> dict[str, dict[str, object]]:
    """One entry per user with every default filled in. `extra_keys` are accepted for each of them."""
    return {
        name: {
            "uid": user.uid,
            "gid": user.own_gid,
            "groups": list(user.groups),
            "shell": user.shell,
            "ssh_authorized_keys": list(dict.fromkeys((*user.ssh_authorized_keys, *extra_keys))),
            "sudo": user.sudo,
        }
        for name, user in users.items()
    }


def group_numbers(groups: Mapping[str, Group]) -> dict[str, dict[str, object]]:
    """One entry per declared group."""
    return {name: {"gid": group.gid} for name, group in groups.items()}


def identity_files(config: ClusterConfig) -> dict[str, str]:
    """`passwd` and `group` with the declared users and groups: slurmctld, slurmdbd and slurmrestd know these.

    They are published with Slurm's own files, so that an apply waits until slurmctld has them. What users or
    administrators add inside the jail is not in them, and no key is. Sorted: the order in a stack file means nothing.
    """
    return dict(zip(FILES, (_passwd(config.users), _group(config.users, config.groups)), strict=True))


def _passwd(users: Mapping[str, User]) -> str:
    return "".join(
        f"{name}:x:{user.uid}:{user.own_gid}::/home/{name}:{user.shell}\n" for name, user in sorted(users.items())
    )


def _group(users: Mapping[str, User], groups: Mapping[str, Group]) -> str:
    """Declared groups with their members, and the own group of each user whose gid is no declared group's."""
    declared = {group.gid for group in groups.values()}
    lines = {
        name: (group.gid, sorted(user for user, entry in users.items() if name in entry.groups))
        for name, group in groups.items()
    }
    for name, user in users.items():
        if user.own_gid not in declared:
            lines[name] = (user.own_gid, [])
    return "".join(f"{name}:x:{gid}:{','.join(members)}\n" for name, (gid, members) in sorted(lines.items()))


def login_limits(limits: UserLimits) -> str:
    """Limits of a login node's users by their names in limits.conf(5), as the login image's sshd reads them.

    `as` in KiB and `cpu` in minutes, as that file has them; the two of all processes together, which are not of that
    file, in bytes and in thousandths of a CPU; the others are counts.
    """
    values = {
        "nproc": limits.processes,
        "nofile": limits.open_files,
        "as": None if limits.memory is None else parse_bytes(limits.memory) // 1024,
        "cpu": limits.cpu_minutes,
        "total_memory": None if limits.total_memory is None else parse_bytes(limits.total_memory),
        "total_cpus": None if limits.total_cpus is None else round(1000 * parse_cpus(limits.total_cpus)),
    }
    return " ".join(f"{name}={value}" for name, value in values.items() if value is not None)
