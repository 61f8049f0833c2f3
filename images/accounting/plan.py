"""What has to change so that Slurm's policy is the wanted one. Pure: it reads nothing and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from images.accounting import reservation
from images.accounting.busy import with_busy
from images.accounting.document import DEFAULT_QOS, Job, Key, ObjectKind, State, is_declared, untouched_default_qos
from images.accounting.fields import Attributes
from images.accounting.wording import change_line, kept_line

ROOT: Final = "root"
"""Slurm's topmost account, which is nobody's to remove."""

Action = Literal["+", "~", "-"]

MAKING: Final[tuple[ObjectKind, ...]] = ("qos", "account", "association", "user", "reservation")
REMOVING: Final[tuple[ObjectKind, ...]] = ("reservation", "user", "association", "account", "qos")

_HANDMADE: Final[tuple[ObjectKind, ...]] = ("qos", "association", "reservation")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One object that is made, changed or removed."""

    action: Action
    kind: ObjectKind
    key: Key
    old: Attributes
    new: Attributes

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the values that differ."""
        return tuple(name for name, value in self.new.items() if self.old.get(name) != value)

    @property
    def line(self) -> str:
        """The change for people. Empty for one that others already tell of."""
        return change_line(self.action, self.kind, self.key, self.old, self.new)


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


def plan(
    present: State, wanted: State, *, prune: bool, now: float, jobs: Iterable[Job] = (), exact: bool = False
) -> Plan:
    """Compare two states.

    What is there and not wanted goes if a stack file had made it, or with `prune`; what was made by hand stays else,
    and so does for now what any of `jobs` uses. `exact`: all of it goes, to come back to a state that was before.
    """
    notes: list[str] = []
    if not exact:
        present, wanted, notes = _without_ended(present, wanted, now)
        wanted, lines = _with_kept(present, _with_default_qos(present, wanted), jobs, prune=prune)
        notes += lines
    wanted = replace(wanted, reservations=_settled(present, wanted, now))
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
    if key in wanted.qos:
        return wanted
    by_hand = key in present.qos and not is_declared("qos", present.qos[key])
    values = present.qos[key] if by_hand else untouched_default_qos()
    return replace(wanted, qos={**wanted.qos, key: values})


def _with_kept(present: State, declared: State, jobs: Iterable[Job], *, prune: bool) -> tuple[State, list[str]]:
    """The declared and all that stays beside it, with a line about each."""
    wanted, handmade = _with_handmade(present, declared, prune=prune)
    wanted, busy = with_busy(present, wanted, jobs)
    leaving = {
        (user,) for (user, *_), values in present.associations.items() if prune or is_declared("association", values)
    } - declared.users.keys()
    users = {key: _user(key, values, wanted.associations) for key, values in wanted.users.items()}
    users |= {key: {**users[key], "admin_level": "none"} for key in leaving & users.keys()}
    return replace(wanted, users=users), handmade + busy


def _with_handmade(present: State, wanted: State, *, prune: bool) -> tuple[State, list[str]]:
    """The wanted state and what stays beside it, which is all that was made by hand, unless it is pruned."""
    kept: dict[ObjectKind, dict[Key, Attributes]] = {}
    lines = []
    for kind in _HANDMADE:
        kept[kind] = {} if prune else _handmade(kind, present, wanted)
        lines += [kept_line(kind, key) for key in sorted(kept[kind])]
    accounts, told = _kept_accounts(present, wanted, [key[1] for key in kept["association"]], prune=prune)
    lines += told
    associations = {**wanted.associations, **kept["association"]}
    users = {key: values for key, values in present.users.items() if any(name == key[0] for name, *_ in associations)}
    state = State(
        qos={**wanted.qos, **kept["qos"]},
        accounts={**wanted.accounts, **accounts},
        associations=associations,
        users={**users, **wanted.users},
        reservations={**wanted.reservations, **kept["reservation"]},
    )
    return state, lines


def _handmade(kind: ObjectKind, present: State, wanted: State) -> dict[Key, Attributes]:
    return {
        key: values
        for key, values in present.of(kind).items()
        if key not in wanted.of(kind) and not is_declared(kind, values)
    }


def _kept_accounts(
    present: State, wanted: State, used: list[str], *, prune: bool
) -> tuple[dict[Key, Attributes], list[str]]:
    """Accounts that are not wanted and stay: made by hand, or with something made by hand below."""
    found: dict[Key, Attributes] = {} if prune else dict(_handmade("account", present, wanted))
    lines = [kept_line("account", key) for key in sorted(found)]
    waiting = [*used, *(str(values["parent"]) for values in found.values())]
    while waiting:
        key = (waiting.pop(),)
        if key in present.accounts and key not in wanted.accounts and key not in found:
            found[key] = present.accounts[key]
            waiting.append(str(found[key]["parent"]))
            lines.append(
                f"! account {key[0]} is not in the stack file any more, but has things made by hand below: kept"
            )
    return found, lines


def _user(key: Key, values: Attributes, associations: Mapping[Key, Attributes]) -> Attributes:
    """A user's values, with a default account that the user still has."""
    accounts = [account for name, account, _ in associations if name == key[0]]
    default = values["default_account"]
    return {**values, "default_account": default if default in accounts else min(accounts)}


def _settled(present: State, wanted: State, now: float) -> dict[Key, Attributes]:
    return {
        key: reservation.settled(present.reservations[key], values, now) if key in present.reservations else values
        for key, values in wanted.reservations.items()
    }


def _changes(present: State, wanted: State) -> Iterator[Change]:
    """First what is new, from the top down, because the rest refers to it; last what goes, from the bottom up."""
    for kind in MAKING:
        here, there = present.of(kind), wanted.of(kind)
        for key in _order(kind, wanted):
            if key not in here:
                yield Change(action="+", kind=kind, key=key, old={}, new=there[key])
            elif any(here[key].get(name) != value for name, value in there[key].items()):
                yield Change(action="~", kind=kind, key=key, old=here[key], new=there[key])
    for kind in REMOVING:
        order = _order(kind, present)
        for key in reversed(order) if kind == "account" else order:
            leaves_with_user = kind == "association" and (key[0],) not in wanted.users
            if key not in wanted.of(kind) and not leaves_with_user:
                old = {**present.of(kind)[key], "accounts": accounts_of(present, key[0])}
                yield Change(action="-", kind=kind, key=key, old=old, new={})


def accounts_of(state: State, user: str) -> tuple[str, ...]:
    """The accounts of a user."""
    return tuple(sorted(account for name, account, _ in state.associations if name == user))


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
