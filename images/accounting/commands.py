"""The calls of sacctmgr and scontrol that carry out a plan.

Users of one account who get the same values are named together, for each call costs slurmdbd 50 ms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from images.common.policy import reservation
from images.common.policy.document import ASSOCIATION, QOS, ROOT, Attributes, Field, Key, State, unset
from images.common.policy.plan import Change, Plan

Command = list[str]

_NAMES: Final = 200
"""Names in one command at most."""

_TEXTS: Final = ("description", "organization")


def commands(plan: Plan, present: State, cluster: str, now: float) -> Iterator[Command]:
    """Every call in its order. An object is there before anything refers to it, and goes after everything that did.

    All but what begins with `scontrol` are words of sacctmgr's.
    """
    by_kind: dict[str, list[Change]] = defaultdict(list)
    for change in plan.changes:
        by_kind[change.action + change.kind].append(change)
    yield from _qos(by_kind["+qos"], by_kind["~qos"])
    yield from _accounts(by_kind["+account"], by_kind["~account"], cluster)
    yield from _new_associations(by_kind["+association"], present, plan.target, cluster)
    changed = [(change.key, _options(ASSOCIATION, _widened(change))) for change in by_kind["~association"]]
    yield from _changed_associations(changed, cluster)
    yield from _users(by_kind["+user"], by_kind["~user"], present, cluster)
    for change in by_kind["-reservation"]:
        yield ["scontrol", *reservation.delete(change.key[0])]
    for change in by_kind["~reservation"]:
        for words in reservation.update(change.key[0], change.old, change.new, now):
            yield ["scontrol", *words]
    for change in by_kind["+reservation"]:
        yield ["scontrol", *reservation.create(change.key[0], change.new, now)]
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
    """New ones of the same kind together, level by level; then each one below its parent, from the top down.

    Going down the wanted tree, a parent is never below its child at the time of the move.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for change in new:
        words = (f"parent={change.new['parent']}", *_texts(change), *_from_nothing(change.new))
        groups.setdefault(words, []).append(change.key[0])
    for words, names in groups.items():
        for some in _portions(names):
            yield ["add", "account", ",".join(some), f"cluster={cluster}", *words]
    for change in changed:
        options = [f"{text}={change.new[text]}" for text in _TEXTS if change.old[text] != change.new[text]]
        options += _options(ASSOCIATION, _widened(change))
        if change.old["parent"] != change.new["parent"]:
            yield _modify_account(change.key[0], cluster, (f"parent={change.new['parent']}",))
        if options:
            yield _modify_account(change.key[0], cluster, options)


def _texts(change: Change) -> list[str]:
    """Those that Slurm does not set to the same: the account's name, and its parent's where that is not the root."""
    name, parent = change.key[0], change.new["parent"]
    usual = {"description": name, "organization": name if parent == ROOT else parent}
    return [f"{text}={change.new[text]}" for text in _TEXTS if change.new[text] != usual[text]]


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
