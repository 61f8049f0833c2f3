"""What must hold between users, groups, accounts and QOS: numbers that only one has, names that somebody knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from config.cluster import Sections
from config.errors import Found, nearest, unknown_name
from config.names import BASE_GROUPS, PACKAGE_GROUPS
from config.sections.accounting import Account, Association, Qos
from config.sections.scheduling import Partition
from config.sections.slurm import Slurm
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
    for name, person in users.items():
        if name in BASE_GROUPS and person.gid not in gids:  # with a declared group the user needs none of the same name
            message = (
                "is a group of the system in the jail, with a number of its own, and the user's own group would have "
                "that name too; take another name"
            )
            yield f"users.{name}", message
    for name, group in groups.items():
        if name in BASE_GROUPS:
            message = "is a group of the system in the jail, with a number of its own; take another name"
            yield f"groups.{name}", message
        gid = users[name].own_gid if name in users else None
        if gid is not None and gid != group.gid and gid not in gids:
            message = f"{group.gid} is not the gid {gid} of the user {name!r}, whose own group has this name too"
            yield f"groups.{name}.gid", message


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
    """Names of accounts and QOS that nothing has, circles, and defaults that are not allowed."""
    names = sections.names("accounts")
    qos_names = sorted({*sections.names("qos"), DEFAULT_QOS})
    yield from _parents(accounts, names)
    for name, account in accounts.items():
        yield from _association(f"accounts.{name}", account, account.parent, accounts, qos_names)
    for name, user in users.items():
        yield from _user(name, user, accounts, names, qos_names)
    yield from _preempted(qos, qos_names)
    for name, partition in partitions.items():
        yield from _access(f"partitions.{name}", partition, names, qos_names)


def _parents(accounts: Accounts, names: list[str]) -> Found:
    for name, account in accounts.items():
        if account.parent is not None and account.parent not in names:
            message = unknown_name(account.parent, names, what="an account of slurmstack:accounts")
            yield f"accounts.{name}.parent", message
    circle = _circle({name: [account.parent] if account.parent else [] for name, account in accounts.items()})
    if circle:
        message = f"is a circle of parents: {' -> '.join(circle)}; give one of these accounts another parent, or none"
        yield f"accounts.{circle[0]}.parent", message


def _circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """The first circle of a directed graph, from a name to itself again; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        around: list[str] = error.args[1][::-1]
        return around
    return []


def _association(where: str, own: Association, parent: str | None, accounts: Accounts, qos_names: list[str]) -> Found:
    """QOS of an account or of a user in one. `parent`: the account above, None for the root."""
    yield from _known_qos(f"{where}.qos", own.qos or (), qos_names)
    if own.qos == ():
        message = "allows no QOS, so that no job can run; name some, or leave it out to have those of the level above"
        yield f"{where}.qos", message
        return
    default = own.default_qos
    if default is not None and default not in qos_names:
        yield from _known_qos(f"{where}.default_qos", [default], qos_names)
        return
    above = _line(parent, accounts)
    usable = next((level.qos for level in (own, *above) if level.qos is not None), (DEFAULT_QOS,))
    if default is not None and default not in usable:
        message = (
            f"{default!r} is not among the QOS that may be used here ({', '.join(usable)}); add it to {where}.qos, or "
            f"take one of these"
        )
        yield f"{where}.default_qos", message
    inherited = next((level.default_qos for level in above if level.default_qos is not None), None)
    if own.qos is not None and default is None and inherited in qos_names and inherited not in own.qos:
        message = (
            f"leaves out {inherited!r}, the default_qos of the account above, which holds here too; add it, or set "
            f"{where}.default_qos"
        )
        yield f"{where}.qos", message


def _line(name: str | None, accounts: Accounts) -> list[Account]:
    """An account and those above it, the nearest first. Ends at an unknown one, and where a circle closes."""
    line: dict[str, Account] = {}
    while name is not None and name in accounts and name not in line:
        line[name] = accounts[name]
        name = line[name].parent
    return list(line.values())


def _user(name: str, user: User, accounts: Accounts, names: list[str], qos_names: list[str]) -> Found:
    for account, association in user.accounts.items():
        where = f"users.{name}.accounts.{account}"
        if account not in names:
            message = unknown_name(account, names, what="an account")
            link = " Else" if message.endswith("?") else ";"
            yield where, f"{message}{link} declare it in slurmstack:accounts"
        yield from _association(where, association, account, accounts, qos_names)
    if user.admin_level != "none" and names and not user.accounts:
        message = f"needs an account: Slurm keeps rights only of users who have one; add users.{name}.accounts"
        yield f"users.{name}.admin_level", message
    if user.default_account is not None and user.default_account not in user.accounts:
        message = f"{user.default_account!r} is not among the user's accounts"
        if user.accounts:
            message = unknown_name(user.default_account, user.accounts, what="among the user's accounts")
        yield f"users.{name}.default_account", f"{message}; add it to users.{name}.accounts, or remove it"


def _known_qos(where: str, wanted: Iterable[str], qos_names: list[str]) -> Found:
    for name in dict.fromkeys(wanted):
        if name not in qos_names:
            yield where, unknown_name(name, qos_names, what="a QOS of slurmstack:qos")


def _preempted(qos: Mapping[str, Qos], qos_names: list[str]) -> Found:
    """Circles, also indirect ones, are refused by slurmdbd (as_mysql_qos.c, _preemption_loop)."""
    for name, one in qos.items():
        yield from _known_qos(f"qos.{name}.preempt", one.preempt, qos_names)
        if name in one.preempt:
            yield f"qos.{name}.preempt", "names the QOS itself; remove it"
    circle = _circle({name: [other for other in one.preempt if other != name] for name, one in qos.items()})
    if circle:
        message = f"is a circle of preemption: {' -> '.join(circle)}; Slurm refuses that, take one of these out"
        yield f"qos.{circle[0]}.preempt", message


def _access(where: str, partition: Partition, account_names: list[str], qos_names: list[str]) -> Found:
    for allow, deny, valid, what in (
        ("allow_accounts", "deny_accounts", [*account_names, "root"], "an account of slurmstack:accounts"),
        ("allow_qos", "deny_qos", qos_names, "a QOS of slurmstack:qos"),
    ):
        for field in (allow, deny):
            for name in dict.fromkeys(getattr(partition, field)):
                if name not in valid:
                    yield f"{where}.{field}", unknown_name(name, valid, what=what)
        if getattr(partition, allow) and getattr(partition, deny):
            message = f"has no effect beside {allow}: Slurm looks at the allowed ones only; remove one of them"
            yield f"{where}.{deny}", message
    if partition.qos is not None:
        yield from _known_qos(f"{where}.qos", [partition.qos], qos_names)
