"""What has to change so that Slurm's policy is the wanted one. Pure: it reads nothing and changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

from images.common.policy import reservation
from images.common.policy.document import (
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

_MAKING: Final[tuple[ObjectKind, ...]] = ("qos", "account", "association", "user", "reservation")
_REMOVING: Final[tuple[ObjectKind, ...]] = ("reservation", "user", "association", "account", "qos")


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
        told = []
        for item, value in self.new.items():
            old, new = _value(item, self.old.get(item)), _value(item, value)
            if item != "comment" and old != new:
                told.append(f"{item.replace('_', ' ')} {old} => {new}")
        return f"{name}: {', '.join(told) or 'made by hand before, kept by the stack file from now on'}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All changes in the order in which Slurm takes them, and what is left as it is."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    """Lines about things that stay though no stack file wants them, and about reservations that are over."""
    target: State
    """What is there afterwards, of all that the changes are about."""

    @property
    def lines(self) -> list[str]:
        """What is done, for people."""
        return [line for change in self.changes if (line := change.line)]


def plan(present: State, wanted: State, *, prune: bool, now: float, jobs: Iterable[Job] = ()) -> Plan:
    """Compare two states.

    What is there and not wanted goes if a stack file had made it, or with `prune`; what was made by hand stays else,
    and so does for now what any of `jobs` uses.
    """
    present, wanted, notes = _without_ended(present, wanted, now)
    wanted, lines = _with_kept(present, _with_default_qos(present, wanted), jobs, prune=prune)
    notes += lines
    here = present.reservations
    settled = {
        key: reservation.settled(here[key], values, now) if key in here else values
        for key, values in wanted.reservations.items()
    }
    wanted = replace(wanted, reservations=settled)
    return Plan(changes=tuple(_changes(present, wanted)), notes=tuple(notes), target=wanted)


def _without_ended(present: State, wanted: State, now: float) -> tuple[State, State, list[str]]:
    """Slurm removes a reservation that has ended by itself."""
    ended = {key for key, values in wanted.reservations.items() if reservation.has_ended(values, now)}
    notes = [f"! reservation {name} has ended: it is not made again" for (name,) in sorted(ended)]
    present, wanted = (
        replace(state, reservations={key: value for key, value in state.reservations.items() if key not in ended})
        for state in (present, wanted)
    )
    return present, wanted, notes


def _with_default_qos(present: State, wanted: State) -> State:
    """`normal` is always there: one that a stack file had declared becomes again what Slurm makes it."""
    key = (DEFAULT_QOS,)
    by_hand = key in present.qos and not is_declared("qos", present.qos[key])
    values = present.qos[key] if by_hand else untouched_default_qos()
    return replace(wanted, qos={key: values, **wanted.qos})


# ---------------------------------------------------------------- what stays


def _with_kept(present: State, declared: State, jobs: Iterable[Job], *, prune: bool) -> tuple[State, list[str]]:
    """The declared and all that stays beside it, with a line about each."""
    wanted, handmade = (declared, []) if prune else _with_handmade(present, declared)
    wanted, busy = _with_busy(present, wanted, jobs)
    leaving = {
        (user,) for (user, *_), values in present.associations.items() if prune or is_declared("association", values)
    } - declared.users.keys()
    users = {key: _user(key, values, wanted.associations) for key, values in wanted.users.items()}
    users |= {key: {**users[key], "admin_level": "none"} for key in leaving & users.keys()}
    return replace(wanted, users=users), handmade + busy


def _user(key: Key, values: Attributes, associations: Mapping[Key, Attributes]) -> Attributes:
    """A user's values, with a default account that the user still has."""
    accounts = [account for name, account, _ in associations if name == key[0]]
    default = values["default_account"]
    return {**values, "default_account": default if default in accounts else min(accounts)}


def _with_handmade(present: State, wanted: State) -> tuple[State, list[str]]:
    """The wanted state and all that was made by hand, which stays beside it, as do the accounts above."""
    qos, accounts, own, reservations = (
        {key: values for key, values in _leaving(present, wanted, kind).items() if not is_declared(kind, values)}
        for kind in ("qos", "account", "association", "reservation")
    )
    associations = {**wanted.associations, **own}
    users = {key: values for key, values in present.users.items() if any(name == key[0] for name, *_ in associations)}
    leaving = _leaving(present, wanted, "account")
    above = _above(leaving, [*(account for _, account, _ in own), *(name for (name,) in accounts)])
    state = State(
        qos={**wanted.qos, **qos},
        accounts={**wanted.accounts, **{key: leaving[key] for key in above}},
        associations=associations,
        users={**users, **wanted.users},
        reservations={**wanted.reservations, **reservations},
    )
    by_hand: tuple[tuple[ObjectKind, Iterable[Key]], ...] = (
        ("qos", qos), ("association", own), ("reservation", reservations), ("account", accounts),
    )  # fmt: skip
    lines = [
        f"! {_subject(kind, key)} was made by hand: kept (accounting.prune: true removes it)"
        for kind, keys in by_hand
        for key in sorted(keys)
    ]
    return state, lines + [_busy_line("account", key, ()) for key in sorted(above - accounts.keys())]


def _with_busy(present: State, wanted: State, jobs: Iterable[Job]) -> tuple[State, list[str]]:
    """The wanted state and what has left it while jobs use it, which stays until they end and takes no new ones.

    slurmdbd removes no user from an account, no account and no QOS under a job that waits or runs. A team whose people
    come and go must not have to wait for their jobs before anything else can be applied.
    """
    ids: dict[Key, list[str]] = defaultdict(list)
    for job in jobs:
        for used in (("association", job.user, job.account), ("account", job.account), ("qos", job.qos)):
            ids[used].append(job.id)
    leaving = _leaving(present, wanted, "association")
    associations = {key: found for key in leaving if (found := ids[("association", *key[:2])])}
    accounts = _leaving(present, wanted, "account")
    below = [*(account for _, account, _ in associations), *(name for (name,) in accounts if ids[("account", name)])]
    above = _above(present.accounts, below) & accounts.keys()
    qos = {key: found for key in _leaving(present, wanted, "qos") if (found := ids[("qos", *key)])}
    lines = [
        *(_busy_line("association", key, found) for key, found in sorted(associations.items())),
        *(_busy_line("account", key, ids[("account", *key)]) for key in sorted(above)),
        *(_busy_line("qos", key, found) for key, found in sorted(qos.items())),
    ]
    state = State(
        qos={**wanted.qos, **{key: present.qos[key] for key in qos}},
        accounts={**wanted.accounts, **{key: _idle(accounts[key]) for key in above}},
        associations={
            **wanted.associations,
            **{key: {**_idle(leaving[key]), "max_submit_jobs": 0} for key in associations},
        },
        users={**{(user,): present.users[(user,)] for user, *_ in associations}, **wanted.users},
        reservations=wanted.reservations,
    )
    return state, lines


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


def _idle(values: Attributes) -> dict[str, Any]:
    """Without a default QOS, which must be one that is allowed, also by accounts above that may lose it now."""
    return {**values, "default_qos": None}


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
_SECONDS: Final = {"duration", "grace_time", "preempt_exempt_time"}

_JOBS: Final = 5
"""Numbers of jobs in a line at most."""


def _busy_line(kind: ObjectKind, key: Key, jobs: Sequence[str]) -> str:
    """For something that left the stack file while jobs use it."""
    if not jobs:
        return f"! {_subject(kind, key)} left the stack file, but something below it is kept, and so is it"
    told = ", ".join(jobs[:_JOBS]) + (", ..." if len(jobs) > _JOBS else "")
    closed = ", without new jobs" if kind == "association" else ""
    return (
        f"! {_subject(kind, key)} left the stack file, but jobs wait or run with it (job {told}): "
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
    if item == "start":
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%M:%S}"
    if item in _MINUTES | _SECONDS:
        return _length(value * 60 if item in _MINUTES else value)
    if isinstance(value, tuple | dict):
        return ",".join(value if isinstance(value, tuple) else (f"{name}={value[name]}" for name in sorted(value)))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value).removesuffix(TAG) if item == "description" else str(value)


def _length(seconds: int) -> str:
    """As Slurm writes a time: `1-00:00:00`."""
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock
