"""What must hold between users and groups: numbers that only one has, names that somebody knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from config.cluster import Sections
from config.errors import Problem, nearest, unknown_name
from config.names import BASE_GROUPS, PACKAGE_GROUPS
from config.sections.users import Group, User

SSSD_VERSIONS = ("24.11",)
"""Versions of Slurm whose Debian suite has SSSD: trixie has it, forky (26.05) has not (November 2026)."""


def identity_problems(sections: Sections) -> Iterator[Problem]:
    """Numbers that several have, and groups that are nowhere.

    Files belong to numbers, so a number that two people have by accident opens the files of one to the other.
    """
    users: Mapping[str, User] = sections.get("users")
    groups: Mapping[str, Group] = sections.get("groups")
    yield from _numbers(users, groups)
    yield from _group_names(users, groups)
    yield from _memberships(users, sections.names("groups"))
    if "sssd" not in sections.written:  # groups of a directory are known only in the cluster
        yield from _partition_groups(sections, users)
    slurm = sections.get("slurm")
    if sections.get("sssd") is not None and slurm is not None and slurm.version not in SSSD_VERSIONS:
        message = (
            f"is not there with Slurm {slurm.version}: Debian's suite with that version has no SSSD; take "
            f"slurm.version {' or '.join(SSSD_VERSIONS)}, or declare the users in slurmstack:users"
        )
        yield Problem("sssd", message)


def _numbers(users: Mapping[str, User], groups: Mapping[str, Group]) -> Iterator[Problem]:
    for number, names in _by_number({name: user.uid for name, user in users.items()}):
        yield Problem("users", f"{' and '.join(names)} have the same uid {number}")
    for number, names in _by_number({name: group.gid for name, group in groups.items()}):
        yield Problem("groups", f"{' and '.join(names)} have the same gid {number}")
    declared = {group.gid: name for name, group in groups.items()}
    own: dict[str, int] = {}
    for name, user in users.items():
        if user.gid is not None and user.gid in declared:
            continue  # written on purpose: a group of several people as primary group
        own[name] = user.uid if user.gid is None else user.gid
        if own[name] in declared and declared[own[name]] != name:
            message = (
                f"{user.uid} is also the gid of the group {declared[user.uid]!r}, and the user's own group would have "
                f"it too; set users.{name}.gid (the same number makes {declared[user.uid]!r} the primary group)"
            )
            yield Problem(f"users.{name}.uid", message)
    for number, names in _by_number(own):
        if len({users[name].uid for name in names}) == 1:
            continue  # said of the uid already
        message = (
            f"{' and '.join(names)} have the same gid {number}; for a common primary group declare it in "
            f"slurmstack:groups with this gid"
        )
        yield Problem("users", message)


def _by_number(numbers: Mapping[str, int]) -> Iterator[tuple[int, list[str]]]:
    """Numbers that several names have."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, number in numbers.items():
        names[number].append(name)
    return ((number, owners) for number, owners in names.items() if len(owners) > 1)


def _group_names(users: Mapping[str, User], groups: Mapping[str, Group]) -> Iterator[Problem]:
    gids = {group.gid for group in groups.values()}
    for name, person in users.items():
        if name in BASE_GROUPS and person.gid not in gids:  # with a declared group the user needs none of the same name
            message = (
                "is a group of the system in the jail, with a number of its own, and the user's own group would have "
                "that name too; take another name"
            )
            yield Problem(f"users.{name}", message)
    for name, group in groups.items():
        if name in BASE_GROUPS:
            message = "is a group of the system in the jail, with a number of its own; take another name"
            yield Problem(f"groups.{name}", message)
        user = users.get(name)
        gid = None if user is None else user.uid if user.gid is None else user.gid
        if gid is not None and gid != group.gid and gid not in gids:
            message = f"{group.gid} is not the gid {gid} of the user {name!r}, whose own group has this name too"
            yield Problem(f"groups.{name}.gid", message)


def _memberships(users: Mapping[str, User], declared: list[str]) -> Iterator[Problem]:
    """Groups must have numbers that slurmctld, login nodes and workers agree on.

    Those of Debian and its usual packages are there or come with their package; all others must be declared.
    """
    for name, user in users.items():
        for group in user.groups:
            if group in declared or group in BASE_GROUPS or group in PACKAGE_GROUPS:
                continue
            guess = nearest(group, declared)
            hint = f" (did you mean {guess!r}?)" if guess else ""
            message = (
                f"{group!r} is no declared group{hint}; add 'slurmstack:groups: {{{group}: {{gid: ...}}}}', or, if "
                f"software in the jail made it, add members there by hand (adduser {name} {group})"
            )
            yield Problem(f"users.{name}.groups", message)


def _partition_groups(sections: Sections, users: Mapping[str, User]) -> Iterator[Problem]:
    """Only declared groups and the users' own ones are known to slurmctld; another name would let nobody in."""
    known = {*sections.names("groups"), *users}
    for name, partition in sections.get("partitions").items():
        for group in partition.allow_groups:
            if group not in known:
                message = unknown_name(group, known, what="a group that slurmctld knows: declare it in groups")
                yield Problem(f"partitions.{name}.allow_groups", message)
