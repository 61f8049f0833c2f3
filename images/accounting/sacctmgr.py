"""The policy in force, read with sacctmgr, and its calls that carry out a plan.

Columns rather than --json: they have the names of the options, they are the same in 24.11 and 26.05 (tried with
both). Text that may contain the separator comes last.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from images.accounting.document import ASSOCIATION, QOS, ROOT, Attributes, Field, Key, ObjectKind, State, unset
from images.accounting.plan import Change, Job, Plan
from images.common.command import NOT_STARTED, TIMED_OUT, Runner
from images.common.process import required_env

TIMEOUT_SECONDS: Final = 60.0

_LOST: Final = (
    "connection refused", "connection timed out", "unable to contact", "problem talking to the database",
    "connection reset", "failed to open persistent connection", "sending persistmsg", "not responding",
    "unable to connect", "unable to establish", "communication", "zero bytes", "sendto", "connect failure",
)  # fmt: skip
"""What Slurm's commands say when the daemon that they need does not answer."""


class UnreachableError(Exception):
    """slurmdbd or slurmctld does not answer."""


class SlurmError(Exception):
    """Slurm has answered and refused."""


@contextmanager
def slurm_env() -> Iterator[dict[str, str]]:
    """The environment in which sacctmgr and scontrol use a slurm.conf of our own, and print times in UTC.

    Nothing of the cluster's real one has to be there: CLUSTER_NAME, CONTROLLER and ACCOUNTING (HOST:PORT of slurmctld
    and slurmdbd) say all. AUTH_TYPE is auth/munge by default. Raises CannotGoOnError where one is missing.
    """
    controller, _, controller_port = required_env("CONTROLLER").rpartition(":")
    accounting, _, accounting_port = required_env("ACCOUNTING").rpartition(":")
    auth = os.environ.get("AUTH_TYPE") or "auth/munge"
    text = (
        f"ClusterName={required_env('CLUSTER_NAME')}\n"
        f"SlurmctldHost={controller}\n"
        f"SlurmctldPort={controller_port}\n"
        "SlurmUser=slurm\n"
        f"AuthType={auth}\n"
        f"CredType={auth.replace('auth/', 'cred/')}\n"
        "AccountingStorageType=accounting_storage/slurmdbd\n"
        f"AccountingStorageHost={accounting}\n"
        f"AccountingStoragePort={accounting_port}\n"
        "MessageTimeout=30\n"
        "TCPTimeout=5\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "SACCT"))}
    with tempfile.TemporaryDirectory(prefix="policy-") as directory:
        path = Path(directory) / "slurm.conf"
        path.write_text(text, encoding="utf-8")
        yield {**kept, "SLURM_CONF": str(path), "TZ": "UTC", "LC_ALL": "C.UTF-8"}


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """Slurm's commands for one cluster."""

    runner: Runner
    cluster: str

    def call(self, argv: Sequence[str]) -> str:
        """What a command prints. Raises one of the two errors above with Slurm's own words."""
        result = self.runner(argv, timeout=TIMEOUT_SECONDS)
        if result.ok:
            return result.stdout
        output = f"{result.stderr}\n{result.stdout}".strip() or result.message
        if result.code in {TIMED_OUT, NOT_STARTED} or any(sign in output.lower() for sign in _LOST):
            raise UnreachableError(output)
        raise SlurmError(output)

    def table(self, what: str, columns: Sequence[str], *where: str) -> list[list[str]]:
        """Rows of `sacctmgr list`, each with as many values as there are columns.

        A line break inside of the last column makes a line with fewer values, which is left out.
        """
        printed = self.call(["sacctmgr", "--noheader", "--parsable2", "list", *what.split(), *where,
                             f"format={','.join(columns)}"])  # fmt: skip
        rows = (line.split("|", len(columns) - 1) for line in printed.split("\n") if line)
        return [row for row in rows if len(row) == len(columns)]

    def has_cluster(self) -> bool:
        """Whether slurmctld has introduced itself to slurmdbd."""
        return [self.cluster] in self.table("cluster", ["Cluster"])


def read(slurm: Slurm) -> State:
    """Everything that is there. Raises UnreachableError, SlurmError, or ValueError for what is not understood."""
    with ThreadPoolExecutor() as pool:
        qos = pool.submit(_read_qos, slurm)
        rows = pool.submit(_read_associations, slurm)
        texts = pool.submit(slurm.table, "account", ["Account", "Org", "Descr"])
        users = pool.submit(slurm.table, "user", ["User", "DefaultAccount", "Admin"])
        accounts, associations = rows.result()
        descriptions = {account: rest for account, *rest in texts.result()}
        for key, values in accounts.items():
            organization, description = descriptions.get(key[0], ("", ""))
            values.update(organization=organization.strip(), description=description.strip())
        named = {user for user, _, _ in associations}
        return State(
            qos=qos.result(),
            accounts=accounts,
            associations=associations,
            users={
                (user,): {"default_account": default, "admin_level": level.lower()}
                for user, default, level in users.result()
                if user in named
            },
        )


def _values(fields: Sequence[Field], texts: Sequence[str]) -> dict[str, Any]:
    return {field.key: field.parse(text) for field, text in zip(fields, texts, strict=True)}


def _read_qos(slurm: Slurm) -> dict[Key, dict[str, Any]]:
    """Descriptions in small letters, as sacctmgr sets them: it could not give `normal` its first one back."""
    rows = slurm.table("qos", ["Name", *(field.column for field in QOS)])
    return {(name,): _values(QOS, [*texts[:-1], texts[-1].lower()]) for name, *texts in rows}


def _read_associations(slurm: Slurm) -> tuple[dict[Key, dict[str, Any]], dict[Key, dict[str, Any]]]:
    """Accounts and users in accounts, each with what it has itself and not from above (`wopl`)."""
    columns = ["Account", "User", "Partition", "ParentName", *(field.column for field in ASSOCIATION)]
    accounts: dict[Key, dict[str, Any]] = {}
    associations: dict[Key, dict[str, Any]] = {}
    for account, user, partition, parent, *texts in slurm.table(
        "assoc wopl", columns, "where", f"cluster={slurm.cluster}"
    ):
        values = _values(ASSOCIATION, texts)
        if user and user != ROOT:
            associations[(user, account, partition)] = values
        elif not user and account != ROOT:
            accounts[(account,)] = {"parent": parent} | values
    return accounts, associations


def active_jobs(slurm: Slurm) -> Iterator[Job]:
    """Jobs that wait, run or are suspended, as slurmdbd knows them."""
    states = "PENDING,RUNNING,SUSPENDED,REQUEUED,RESIZING"
    # Where no association is asked for an account is whatever its user has written, lines of other jobs as well.
    between = f"|{secrets.token_hex(4)}|"
    printed = slurm.call(
        ["sacct", "--allusers", "--allocations", "--noheader", "--parsable2", f"--clusters={slurm.cluster}",
         f"--state={states}", f"--delimiter={between}", "--format=JobID,User,QOS,Account"]
    )  # fmt: skip
    for line in printed.split("\n"):
        job, *values = line.split(between, 3)
        if len(values) == 3 and job[:1].isdecimal():
            user, qos, account = values
            yield Job(id=job, user=user, account=account, qos=qos)


# ---------------------------------------------------------------- the calls that carry out a plan

Command = list[str]

_NAMES: Final = 200
"""Names in one command at most."""

_TEXTS: Final = ("description", "organization")


def commands(plan: Plan, present: State, cluster: str) -> Iterator[Command]:
    """Every call in its order. An object is there before anything refers to it, and goes after everything that did.

    Words of sacctmgr's. Users of one account who get the same values are named together, for each call costs slurmdbd
    50 ms.
    """
    by_kind: dict[str, list[Change]] = defaultdict(list)
    for change in plan.changes:
        by_kind[change.action + change.kind].append(change)
    yield from _qos(by_kind["+qos"], by_kind["~qos"])
    yield from _widened_leaving(plan, present, cluster)
    yield from _accounts(by_kind["+account"], by_kind["~account"], cluster)
    yield from _new_associations(by_kind["+association"], present, plan.target, cluster)
    changed = [(change.key, _options(ASSOCIATION, _widened(change))) for change in by_kind["~association"]]
    yield from _changed_associations(changed, cluster)
    yield from _users(by_kind["+user"], by_kind["~user"], present, cluster)
    yield from _leaving_users(by_kind["-user"], by_kind["-association"], cluster)
    yield from _narrowed(by_kind["~account"], by_kind["~association"], cluster)
    for change in by_kind["-account"]:
        # With `cluster=` its description and organization would stay behind (measured).
        yield ["delete", "account", "where", f"name={change.key[0]}"]
    for change in by_kind["-qos"]:
        yield ["delete", "qos", "where", f"name={change.key[0]}"]


# ---------------------------------------------------------------- values


def _options(fields: Sequence[Field], change: tuple[Attributes, Attributes]) -> tuple[str, ...]:
    """The words after `set` for what differs."""
    old, new = change
    return tuple(
        field.option_for(old.get(field.key), new[field.key])
        for field in fields
        if field.key in new and old.get(field.key) != new[field.key]
    )


def _widened(change: Change) -> tuple[Attributes, Attributes]:
    """A change that does not yet take any QOS away: it may still be the default of somebody below.

    A new default is allowed at once, also where the new list is none and what is above decides.
    """
    if not _narrows(change):
        return change.old, change.new
    default = [change.new["default_qos"]] if change.new["default_qos"] else []
    allowed = {*change.old["qos"], *change.new["qos"], *default}
    return change.old, {**change.new, "qos": tuple(sorted(allowed))}


def _widened_leaving(plan: Plan, present: State, cluster: str) -> Iterator[Command]:
    """What leaves goes after its account has changed: until then it is allowed the new default QOS of that, too."""
    changed = [change.new["default_qos"] for change in plan.changes if change.kind == "account" and change.new]
    defaults = {qos for qos in changed if qos}
    kinds: tuple[ObjectKind, ...] = ("account", "association")
    for kind in kinds:
        for key, values in sorted(present.of(kind).items()):
            own = set(values["qos"])
            if own and not defaults <= own and key not in plan.target.of(kind):
                words = (f"qos={','.join(sorted(own | defaults))}",)
                if kind == "account":
                    yield _modify_account(key[0], cluster, words)
                else:
                    yield from _changed_associations([(key, words)], cluster)


def _narrows(change: Change) -> bool:
    """Whether fewer QOS are allowed, as far as the object itself tells."""
    return bool(change.old["qos"]) and not set(change.old["qos"]) <= set(change.new["qos"])


def _narrowed(accounts: list[Change], users: list[Change], cluster: str) -> Iterator[Command]:
    late = [(change.key, (f"qos={','.join(change.new['qos'])}",)) for change in users if _narrows(change)]
    yield from _changed_associations(late, cluster)
    for change in reversed(accounts):
        if _narrows(change):
            yield _modify_account(change.key[0], cluster, (f"qos={','.join(change.new['qos'])}",))


# ---------------------------------------------------------------- QOS


def _qos(new: list[Change], changed: list[Change]) -> Iterator[Command]:
    """A QOS may preempt one that is made after it, so these lists come last.

    Slurm refuses a loop, also one that the next command would open: what is preempted no more goes before the rest.
    """
    for change in new:
        bare = {**change.new, "preempt": ()}
        yield ["add", "qos", change.key[0], *_options(QOS, (unset(QOS), bare))]
    kept = {change.key: tuple(sorted({*change.old["preempt"]} & {*change.new["preempt"]})) for change in changed}
    for change in changed:
        if kept[change.key] != change.old["preempt"]:
            yield _modify_qos(change.key, (f"preempt={','.join(kept[change.key])}",))
    for change in new:
        if change.new["preempt"]:
            yield _modify_qos(change.key, (f"preempt={','.join(change.new['preempt'])}",))
    for change in changed:
        options = _options(QOS, ({**change.old, "preempt": kept[change.key]}, change.new))
        if options:
            yield _modify_qos(change.key, options)


def _modify_qos(key: Key, options: Iterable[str]) -> Command:
    return ["modify", "qos", "where", f"name={key[0]}", "set", *options]


# ---------------------------------------------------------------- accounts


def _accounts(new: list[Change], changed: list[Change], cluster: str) -> Iterator[Command]:
    """New ones from the top down; then each changed one below its parent.

    Going down the wanted tree, a parent is never below its child at the time of the move.
    """
    for change in new:
        words = [f"parent={change.new['parent']}", *(f"{text}={change.new[text]}" for text in _TEXTS)]
        yield ["add", "account", change.key[0], f"cluster={cluster}", *words, *_from_nothing(change.new)]
    for change in changed:
        options = [f"{text}={change.new[text]}" for text in _TEXTS if change.old[text] != change.new[text]]
        options += _options(ASSOCIATION, _widened(change))
        if change.old["parent"] != change.new["parent"]:
            yield _modify_account(change.key[0], cluster, (f"parent={change.new['parent']}",))
        if options:
            yield _modify_account(change.key[0], cluster, options)


def _modify_account(name: str, cluster: str, options: Iterable[str]) -> Command:
    return ["modify", "account", "where", f"name={name}", f"cluster={cluster}", "set", *options]


def _from_nothing(values: Attributes) -> tuple[str, ...]:
    return _options(ASSOCIATION, (unset(ASSOCIATION), values))


# ---------------------------------------------------------------- users in accounts


def _new_associations(new: list[Change], present: State, target: State, cluster: str) -> Iterator[Command]:
    """The first account that a user gets becomes the default one, so that is made first."""
    first: list[Change] = []
    others: list[Change] = []
    for change in new:
        user, account, _ = change.key
        is_default = (user,) not in present.users and target.users[(user,)]["default_account"] == account
        (first if is_default else others).append(change)
    for changes in (first, others):
        for users, where, words in _together((change.key, _from_nothing(change.new)) for change in changes):
            yield ["add", "user", users, f"cluster={cluster}", *where, *words]


def _changed_associations(values: Iterable[tuple[Key, tuple[str, ...]]], cluster: str) -> Iterator[Command]:
    for users, where, words in _together((key, words) for key, words in values if words):
        yield ["modify", "user", "where", f"name={users}", f"cluster={cluster}", *where, "set", *words]


def _together(values: Iterable[tuple[Key, tuple[str, ...]]]) -> Iterator[tuple[str, list[str], tuple[str, ...]]]:
    """Names of users to whom the same happens in one account, the words for that account, and what happens."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (user, account, partition), words in values:
        groups.setdefault((account, partition, words), []).append(user)
    for (account, partition, words), users in groups.items():
        where = [f"account={account}", *([f"partition={partition}"] if partition else [])]
        for some in _portions(users):
            yield ",".join(some), where, words


def _portions(names: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(names), _NAMES):
        yield names[start : start + _NAMES]


def _users(new: list[Change], changed: list[Change], present: State, cluster: str) -> Iterator[Command]:
    levels: dict[str, list[str]] = defaultdict(list)
    defaults: dict[str, list[str]] = defaultdict(list)
    for change in [*new, *changed]:
        name = change.key[0]
        if change.old.get("admin_level", "none") != change.new["admin_level"]:
            levels[change.new["admin_level"]].append(name)
        if (name,) in present.users and change.old["default_account"] != change.new["default_account"]:
            defaults[change.new["default_account"]].append(name)
    for word, groups in (("defaultaccount", defaults), ("adminlevel", levels)):
        for value, names in groups.items():
            for some in _portions(names):
                where = [f"name={','.join(some)}", *([f"cluster={cluster}"] if word == "defaultaccount" else [])]
                yield ["modify", "user", "where", *where, "set", f"{word}={value}"]


def _leaving_users(wholly: list[Change], partly: list[Change], cluster: str) -> Iterator[Command]:
    for users in _portions([change.key[0] for change in wholly]):
        yield ["delete", "user", "where", f"name={','.join(users)}", f"cluster={cluster}"]
    for names, where, _ in _together((change.key, ()) for change in partly):
        yield ["delete", "user", "where", f"name={names}", f"cluster={cluster}", *where]
