"""What has to change so that Slurm's policy is the wanted one. Pure: it reads nothing and changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from images.accounting.document import (
    DEFAULT_QOS,
    ROOT,
    TAG,
    Attributes,
    Key,
    ObjectKind,
    State,
    is_declared,
    untouched_default_qos,
)

_MAKING: Final[tuple[ObjectKind, ...]] = ("qos", "account", "association", "user")
_REMOVING: Final[tuple[ObjectKind, ...]] = ("user", "association", "account", "qos")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that is not over."""

    id: str
    user: str
    account: str
    qos: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """One object that is made, changed or removed."""

    action: Literal["+", "~", "-"]
    kind: ObjectKind
    key: Key
    old: Attributes
    new: Attributes

    @property
    def line(self) -> str:
        """For people, as `+ account ml` or `~ user alice in ml: fairshare 1 => 3`.

        Empty for a change that others already tell of.
        """
        name = f"{self.action} {_subject(self.kind, self.key)}"
        if self.action == "+" and self.kind == "user":
            level = self.new.get("admin_level", "none")
            return "" if level == "none" else f"{name}: admin level {level}"  # its associations tell the rest
        if self.action != "~":
            return name
        changes = []
        for item, value in self.new.items():
            old, new = _value(item, self.old.get(item)), _value(item, value)
            if item != "comment" and old != new:
                changes.append(f"{item.replace('_', ' ')} {old} => {new}")
        return f"{name}: {', '.join(changes) or 'made by hand before, kept by the stack file from now on'}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All changes in the order in which Slurm takes them, and what is left as it is."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    """Lines about things that stay though no stack file wants them."""
    target: State
    """What is there afterwards, of all that the changes are about."""

    @property
    def lines(self) -> list[str]:
        """What is done, for people."""
        return [line for change in self.changes if (line := change.line)]


def plan(present: State, wanted: State, *, prune: bool, jobs: Iterable[Job] = ()) -> Plan:
    """Compare two states.

    What is there and not wanted goes if a stack file had made it, or with `prune`; what was made by hand stays else,
    and so does for now what any of `jobs` uses.
    """
    # `normal` is always there: one that a stack file had declared becomes again what Slurm makes it.
    key = (DEFAULT_QOS,)
    by_hand = key in present.qos and not is_declared("qos", present.qos[key])
    normal = present.qos[key] if by_hand else untouched_default_qos()
    target, notes = _with_kept(present, replace(wanted, qos={key: normal, **wanted.qos}), jobs, prune=prune)
    return Plan(changes=tuple(_changes(present, target)), notes=tuple(notes), target=target)


def _with_kept(present: State, wanted: State, jobs: Iterable[Job], *, prune: bool) -> tuple[State, list[str]]:
    """The wanted state and all that stays beside it, with a line about each.

    slurmdbd removes no user from an account, no account and no QOS under a job that waits or runs. A team whose people
    come and go must not have to wait for their jobs before anything else can be applied: what jobs use stays until they
    end, and takes no new ones.
    """
    used: dict[Key, list[str]] = defaultdict(list)
    for job in jobs:
        for use in (("association", job.user, job.account), ("account", job.account), ("qos", job.qos)):
            used[use].append(job.id)
    kept: dict[ObjectKind, dict[Key, Attributes]] = {"qos": {}, "association": {}, "account": {}}
    notes = []
    for kind, those in kept.items():
        qos = wanted.qos.keys() | kept["qos"].keys()
        for key, values in sorted(_leaving(present, wanted, kind).items()):
            if not prune and not is_declared(kind, values):
                those[key] = values
                notes.append(f"! {_subject(kind, key)} was made by hand: kept (accounting.prune: true removes it)")
            elif found := used[(kind, *key[:2])]:
                those[key] = _idle(kind, values, qos)
                notes.append(_kept_line(kind, key, found))
    leaving = _leaving(present, wanted, "account")
    below = [*(account for _, account, _ in kept["association"]), *(name for (name,) in kept["account"])]
    for key in sorted(_above(leaving, below) - kept["account"].keys()):
        kept["account"][key] = _idle("account", leaving[key], qos)
        notes.append(_kept_line("account", key, ()))
    state = State(
        qos={**wanted.qos, **kept["qos"]},
        accounts={**wanted.accounts, **kept["account"]},
        associations={**wanted.associations, **kept["association"]},
        users={**_kept_users(present, wanted, kept["association"], prune=prune), **wanted.users},
    )
    return state, notes


def _kept_users(present: State, wanted: State, kept: Iterable[Key], *, prune: bool) -> dict[Key, Attributes]:
    """Users who only have what is kept, with a default account among it, and no rights that a stack file had given."""
    accounts: dict[Key, list[str]] = defaultdict(list)
    for user, account, _ in kept:
        accounts[(user,)].append(account)
    there = present.associations.items()
    leaving = {(user,) for (user, *_), values in there if prune or is_declared("association", values)}
    found: dict[Key, Attributes] = {}
    # One that was made while this was read has an association, and is not among the users yet.
    for key in accounts.keys() & present.users.keys() - wanted.users.keys():
        default, level = present.users[key]["default_account"], present.users[key]["admin_level"]
        found[key] = {
            "default_account": default if default in accounts[key] else min(accounts[key]),
            "admin_level": "none" if key in leaving else level,
        }
    return found


def _leaving(present: State, wanted: State, kind: ObjectKind) -> dict[Key, Attributes]:
    return {key: values for key, values in present.of(kind).items() if key not in wanted.of(kind)}


def _above(accounts: Mapping[Key, Attributes], names: list[str]) -> set[Key]:
    """Those of the accounts that have one of these names, and all above them."""
    found: set[Key] = set()
    while names:
        key = (names.pop(),)
        if key in accounts and key not in found:
            found.add(key)
            names.append(str(accounts[key]["parent"]))
    return found


def _idle(kind: ObjectKind, values: Attributes, qos: AbstractSet[Key]) -> Attributes:
    """Without a default QOS that may not be allowed any more: one that leaves, or that accounts above may lose now."""
    if kind == "qos":
        return values
    if kind == "association":
        return {**values, "default_qos": None, "max_submit_jobs": 0}
    default = values["default_qos"]
    return values if default in values["qos"] and (default,) in qos else {**values, "default_qos": None}


# ---------------------------------------------------------------- what changes


def _changes(present: State, wanted: State) -> Iterator[Change]:
    """First what is new, from the top down, because the rest refers to it; last what goes, from the bottom up."""
    for kind in _MAKING:
        here, there = present.of(kind), wanted.of(kind)
        for key in _order(kind, wanted):
            if key not in here:
                yield Change(action="+", kind=kind, key=key, old={}, new=there[key])
            elif any(here[key].get(name) != value for name, value in there[key].items()):
                yield Change(action="~", kind=kind, key=key, old=here[key], new=there[key])
    for kind in _REMOVING:
        order = _order(kind, present)
        for key in reversed(order) if kind == "account" else order:
            leaves_with_user = kind == "association" and (key[0],) not in wanted.users
            if key not in wanted.of(kind) and not leaves_with_user:
                yield Change(action="-", kind=kind, key=key, old=present.of(kind)[key], new={})


def _order(kind: ObjectKind, state: State) -> list[Key]:
    """Names in alphabetical order, accounts below their parents."""
    if kind != "account":
        return sorted(state.of(kind))
    return sorted(state.accounts, key=lambda key: _path(state, key[0]))


def _path(state: State, account: str) -> tuple[str, ...]:
    """Names of the accounts above an account, and its own."""
    path = [account]
    while (above := state.accounts.get((path[0],))) and above["parent"] != ROOT and len(path) <= len(state.accounts):
        path.insert(0, str(above["parent"]))
    return tuple(path)


# ---------------------------------------------------------------- lines that people read

_MINUTES: Final = {"grp_wall", "max_wall"}
_SECONDS: Final = {"grace_time", "preempt_exempt_time"}

_JOBS: Final = 5
"""Numbers of jobs in a line at most."""


def _kept_line(kind: ObjectKind, key: Key, jobs: Sequence[str]) -> str:
    """For something that left the stack file while jobs use it."""
    if not jobs:
        return f"! {_subject(kind, key)} left the stack file, but something below it is kept, and so is it"
    listed = ", ".join(jobs[:_JOBS]) + (", ..." if len(jobs) > _JOBS else "")
    closed = ", without new jobs" if kind == "association" else ""
    return (
        f"! {_subject(kind, key)} left the stack file, but jobs wait or run with it (job {listed}): "
        f"kept{closed}; the first `up` after their end removes it"
    )


def _subject(kind: ObjectKind, key: Key) -> str:
    if kind != "association":
        return f"{kind} {key[0]}"
    user, account, partition = key
    return f"user {user} in {account}" + (f", partition {partition}" if partition else "")


def _value(item: str, value: Any) -> str:
    if value is None or value in ((), {}, ""):
        return "none"
    if item in _MINUTES | _SECONDS:
        return _length(value * 60 if item in _MINUTES else value)
    if isinstance(value, tuple | dict):
        return ",".join(value if isinstance(value, tuple) else (f"{name}={value[name]}" for name in sorted(value)))
    return str(value).removesuffix(TAG) if item == "description" else str(value)


def _length(seconds: int) -> str:
    """As Slurm writes a time: `1-00:00:00`."""
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock
