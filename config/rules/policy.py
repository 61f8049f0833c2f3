"""What must hold between accounts, QOS, users and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from config.cluster import Sections
from config.errors import Problem, unknown_name
from config.sections.accounting import Account, Association, Qos
from config.sections.scheduling import Partition
from config.sections.users import User

DEFAULT_QOS = "normal"
"""The QOS that slurmdbd itself makes, and that the root of the accounts has."""


def policy_problems(sections: Sections) -> Iterator[Problem]:
    """Names that nothing has, circles, and defaults that are not allowed."""
    accounts: Mapping[str, Account] = sections.get("accounts")
    users: Mapping[str, User] = sections.get("users")
    account_names = sections.names("accounts")
    qos_names = sorted({*sections.names("qos"), DEFAULT_QOS})
    yield from _parents(accounts, account_names)
    for name, account in accounts.items():
        yield from _association(f"accounts.{name}", account, account.parent, accounts, qos_names)
    for name, user in users.items():
        yield from _user(name, user, accounts, account_names, qos_names)
    yield from _preempted(sections.get("qos"), qos_names)
    for name, partition in sections.get("partitions").items():
        yield from _access(f"partitions.{name}", partition, account_names, qos_names)


def _parents(accounts: Mapping[str, Account], names: list[str]) -> Iterator[Problem]:
    for name, account in accounts.items():
        if account.parent is not None and account.parent not in names:
            message = unknown_name(account.parent, names, what="an account of slurmstack:accounts")
            yield Problem(f"accounts.{name}.parent", message)
    circle = _circle({name: [account.parent] if account.parent else [] for name, account in accounts.items()})
    if circle:
        message = f"is a circle of parents: {' -> '.join(circle)}; give one of these accounts another parent, or none"
        yield Problem(f"accounts.{circle[0]}.parent", message)


def _circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """The first circle of a directed graph, from a name to itself again; empty where there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        around: list[str] = error.args[1][::-1]
        return around
    return []


def _association(
    where: str, own: Association, parent: str | None, accounts: Mapping[str, Account], qos_names: list[str]
) -> Iterator[Problem]:
    """QOS of an account or of a user in one. `parent`: the account above, None for the root."""
    yield from _known_qos(f"{where}.qos", own.qos or (), qos_names)
    if own.qos == ():
        message = "allows no QOS, so that no job can run; name some, or leave it out to have those of the level above"
        yield Problem(f"{where}.qos", message)
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
        yield Problem(f"{where}.default_qos", message)
    inherited = next((level.default_qos for level in above if level.default_qos is not None), None)
    if own.qos is not None and default is None and inherited in qos_names and inherited not in own.qos:
        message = (
            f"leaves out {inherited!r}, the default_qos of the account above, which holds here too; add it, or set "
            f"{where}.default_qos"
        )
        yield Problem(f"{where}.qos", message)


def _line(name: str | None, accounts: Mapping[str, Account]) -> list[Account]:
    """An account and those above it, the nearest first. Ends at an unknown one, and where a circle closes."""
    line: dict[str, Account] = {}
    while name is not None and name in accounts and name not in line:
        line[name] = accounts[name]
        name = line[name].parent
    return list(line.values())


def _user(
    name: str, user: User, accounts: Mapping[str, Account], account_names: list[str], qos_names: list[str]
) -> Iterator[Problem]:
    for account, association in user.accounts.items():
        where = f"users.{name}.accounts.{account}"
        if account not in account_names:
            message = unknown_name(account, account_names, what="an account")
            link = " Else" if message.endswith("?") else ";"
            yield Problem(where, f"{message}{link} declare it in slurmstack:accounts")
        yield from _association(where, association, account, accounts, qos_names)
    if user.admin_level != "none" and account_names and not user.accounts:
        message = f"needs an account: Slurm keeps rights only of users who have one; add users.{name}.accounts"
        yield Problem(f"users.{name}.admin_level", message)
    if user.default_account is not None and user.default_account not in user.accounts:
        message = f"{user.default_account!r} is not among the user's accounts"
        if user.accounts:
            message = unknown_name(user.default_account, user.accounts, what="among the user's accounts")
        add = f"add it to users.{name}.accounts, or remove it"
        yield Problem(f"users.{name}.default_account", f"{message}; {add}")


def _known_qos(where: str, wanted: Iterable[str], qos_names: list[str]) -> Iterator[Problem]:
    for name in dict.fromkeys(wanted):
        if name not in qos_names:
            yield Problem(where, unknown_name(name, qos_names, what="a QOS of slurmstack:qos"))


def _preempted(qos: Mapping[str, Qos], qos_names: list[str]) -> Iterator[Problem]:
    """Circles, also indirect ones, are refused by slurmdbd (as_mysql_qos.c, _preemption_loop)."""
    for name, one in qos.items():
        yield from _known_qos(f"qos.{name}.preempt", one.preempt, qos_names)
        if name in one.preempt:
            yield Problem(f"qos.{name}.preempt", "names the QOS itself; remove it")
    graph = {name: [other for other in one.preempt if other != name] for name, one in qos.items()}
    circle = _circle(graph)
    if circle:
        message = f"is a circle of preemption: {' -> '.join(circle)}; Slurm refuses that, take one of these out"
        yield Problem(f"qos.{circle[0]}.preempt", message)


def _access(where: str, partition: Partition, account_names: list[str], qos_names: list[str]) -> Iterator[Problem]:
    for allow, deny, valid, what in (
        ("allow_accounts", "deny_accounts", [*account_names, "root"], "an account of slurmstack:accounts"),
        ("allow_qos", "deny_qos", qos_names, "a QOS of slurmstack:qos"),
    ):
        for field in (allow, deny):
            for name in dict.fromkeys(getattr(partition, field)):
                if name not in valid:
                    yield Problem(f"{where}.{field}", unknown_name(name, valid, what=what))
        if getattr(partition, allow) and getattr(partition, deny):
            message = f"has no effect beside {allow}: Slurm looks at the allowed ones only; remove one of them"
            yield Problem(f"{where}.{deny}", message)
    if partition.qos is not None:
        yield from _known_qos(f"{where}.qos", [partition.qos], qos_names)
