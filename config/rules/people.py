"""What must hold between users, groups, accounts and QOS: numbers that only one has, names that somebody knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from config.cluster import Sections
from config.errors import Found, nearest, unknown_name
from config.names import BASE_GROUPS, PACKAGE_GROUPS
from config.sections.accounting import Account, Association, Qos
from config.sections.slurm import Partition, Slurm
from config.sections.users import Group, Sssd, User

SSSD_VERSIONS = ("24.11",)
"""Versions of Slurm whose Debian suite has SSSD: trixie has it, forky (26.05) has not (November 2026)."""

DEFAULT_QOS = "normal"
"""The QOS that slurmdbd itself makes, and that the root of the accounts has."""

Users = Mapping[str, User]
Groups = Mapping[str, Group]
Accounts = Mapping[str, Account]


def identities(
    sections: Sections,
    *,
    users: Users,
    groups: Groups,
    partitions: Mapping[str, Partition],
    sssd: Sssd | None,
    slurm: Slurm | None,
) -> Found:
    """Numbers that several have, and groups that are nowhere.

    Files belong to numbers, so a number that two people have by accident opens the files of one to the other.
    """
    yield from _numbers(users, groups)
    yield from _group_names(users, groups)
    yield from _memberships(users, sections.names("groups"))
    if "sssd" not in sections.written:  # groups of a directory are known only in the cluster
        # Only declared groups and the users' own ones are known to slurmctld; another name would let nobody in.
        known = {*sections.names("groups"), *users}
        for name, partition in partitions.items():
            for group in partition.allow_groups:
                if group not in known:
                    what = "a group that slurmctld knows: declare it in groups"
                    yield f"partitions.{name}.allow_groups", unknown_name(group, known, what=what)
    if sssd is not None and slurm is not None and slurm.version not in SSSD_VERSIONS:
        message = (
            f"is not there with Slurm {slurm.version}: Debian's suite with that version has no SSSD; take "
            f"slurm.version {' or '.join(SSSD_VERSIONS)}, or declare the users in slurmstack:users"
        )
        yield "sssd", message


def _numbers(users: Users, groups: Groups) -> Found:
    for number, names in _shared({name: user.uid for name, user in users.items()}):
        yield "users", f"{' and '.join(names)} have the same uid {number}"
    for number, names in _shared({name: group.gid for name, group in groups.items()}):
        yield "groups", f"{' and '.join(names)} have the same gid {number}"
    declared = {group.gid: name for name, group in groups.items()}
    own: dict[str, int] = {}
    for name, user in users.items():
        if user.gid is not None and user.gid in declared:
            continue  # written on purpose: a group of several people as primary group
        own[name] = user.own_gid
        if own[name] in declared and declared[own[name]] != name:
            message = (
                f"{user.uid} is also the gid of the group {declared[user.uid]!r}, and the user's own group would have "
                f"it too; set users.{name}.gid (the same number makes {declared[user.uid]!r} the primary group)"
            )
            yield f"users.{name}.uid", message
    for number, names in _shared(own):
        if len({users[name].uid for name in names}) > 1:  # else it is said of the uid already
            message = (
                f"{' and '.join(names)} have the same gid {number}; for a common primary group declare it in "
                f"slurmstack:groups with this gid"
            )
            yield "users", message


def _shared(numbers: Mapping[str, int]) -> Iterator[tuple[int, list[str]]]:
    """Numbers that several names have."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, number in numbers.items():
        names[number].append(name)
    return ((number, owners) for number, owners in names.items() if len(owners) > 1)


def _group_names(users: Users, groups: Groups) -> Found:
    gids = {group.gid for group in groups.values()}
    what = "is a group of the system in the jail, with a number of its own"
    for name, person in users.items():
        if name in BASE_GROUPS and person.gid not in gids:  # with a declared group the user needs none of the same name
            yield f"users.{name}", f"{what}, and the user's own group would have that name too; take another name"
    for name in groups:
        if name in BASE_GROUPS:
            yield f"groups.{name}", f"{what}; take another name"


def _memberships(users: Users, declared: list[str]) -> Found:
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
            yield f"users.{name}.groups", message


def policy(
    sections: Sections,
    accounts: Accounts,
    users: Users,
    qos: Mapping[str, Qos],
    partitions: Mapping[str, Partition],
) -> Found:
    """Names of accounts and QOS that nothing has. What else does not fit together, slurmdbd refuses."""
    names = sections.names("accounts")
    qos_names = sorted({*sections.names("qos"), DEFAULT_QOS})
    for name, account in accounts.items():
        if account.parent is not None:
            yield from _known_account(f"accounts.{name}.parent", [account.parent], names)
        yield from _association(f"accounts.{name}", account, qos_names)
    for name, user in users.items():
        yield from _user(f"users.{name}", user, names, qos_names)
    for name, one in qos.items():
        yield from _known_qos(f"qos.{name}.preempt", one.preempt, qos_names)
    for name, partition in partitions.items():
        where = f"partitions.{name}"
        for field in ("allow_accounts", "deny_accounts"):
            yield from _known_account(f"{where}.{field}", getattr(partition, field), [*names, "root"])
        for field in ("allow_qos", "deny_qos"):
            yield from _known_qos(f"{where}.{field}", getattr(partition, field), qos_names)
        if partition.qos is not None:
            yield from _known_qos(f"{where}.qos", [partition.qos], qos_names)


def _user(where: str, user: User, names: list[str], qos_names: list[str]) -> Found:
    yield from _known_account(f"{where}.accounts", user.accounts, names)
    for account, association in user.accounts.items():
        yield from _association(f"{where}.accounts.{account}", association, qos_names)
    if user.admin_level != "none" and names and not user.accounts:
        message = f"needs an account: Slurm keeps rights only of users who have one; add {where}.accounts"
        yield f"{where}.admin_level", message
    if user.default_account is not None and user.default_account not in user.accounts:
        message = unknown_name(user.default_account, user.accounts, what="among the user's accounts")
        yield f"{where}.default_account", message


def _association(where: str, own: Association, qos_names: list[str]) -> Found:
    yield from _known_qos(f"{where}.qos", own.qos or (), qos_names)
    if own.default_qos is not None:
        yield from _known_qos(f"{where}.default_qos", [own.default_qos], qos_names)


def _known_account(where: str, wanted: Iterable[str], names: list[str]) -> Found:
    for name in dict.fromkeys(wanted):
        if name not in names:
            yield where, unknown_name(name, names, what="an account of slurmstack:accounts")


def _known_qos(where: str, wanted: Iterable[str], qos_names: list[str]) -> Found:
    for name in dict.fromkeys(wanted):
        if name not in qos_names:
            yield where, unknown_name(name, qos_names, what="a QOS of slurmstack:qos")
