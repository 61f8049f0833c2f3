"""The account files of the jail (passwd, shadow, group, gshadow) as values, and what declared users make of them.

Pure: nothing is read or written here, so that all is decided before anything is changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from images.common.process import RefusedError

NOLOGIN: Final = "/usr/sbin/nologin"
LOCKED: Final = "!"
NO_PASSWORD: Final = "*"  # noqa: S105 - no password at all
"""No password matches, but keys do: sshd without PAM refuses accounts that are locked with `!`."""

OF_USERS: Final = range(1000, 60000)
"""Numbers outside belong to the system."""

_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


def is_name(name: str) -> bool:
    """Whether a user or group may be called so. It is also safe as a file's name."""
    return bool(_NAME.fullmatch(name))


def expect_number(*numbers: object) -> None:
    """Raise TypeError."""
    for number in numbers:
        if type(number) is not int or not 0 <= number < 2**32:
            raise TypeError("uid and gid are numbers of 32 bits")


class AccountError(RefusedError):
    """The declared users and groups do not fit the jail; nothing was changed. Every conflict is in the message."""

    def __init__(self, conflicts: str) -> None:
        super().__init__(f"nothing was changed:\n{conflicts}")


@dataclass(frozen=True, kw_only=True)
class User:
    """A user as declared."""

    uid: int
    gid: int
    groups: tuple[str, ...] = ()
    shell: str = "/bin/bash"
    ssh_authorized_keys: tuple[str, ...] = ()
    sudo: bool = False

    def __post_init__(self) -> None:
        """Raise TypeError: what was declared once is read where whoever is root in the jail can write."""
        expect_number(self.uid, self.gid)
        if not all(isinstance(word, str) for word in (self.shell, *self.groups, *self.ssh_authorized_keys)):
            raise TypeError("shell, groups and ssh_authorized_keys are texts")

    @staticmethod
    def from_json(value: Mapping[str, object]) -> User:
        """From one entry of users.json."""
        data = dict(value)
        for key in ("groups", "ssh_authorized_keys"):
            data[key] = tuple(data.get(key) or ())  # type: ignore[arg-type]
        if not data.get("shell"):
            data.pop("shell", None)
        return User(**data)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a stack file says, or said at the last run."""

    users: Mapping[str, User] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    """The gid of each. Who is in it is said by the users."""


@dataclass
class Table:
    """A file of lines with fields that are separated by colons, the first of which is a name."""

    rows: list[list[str]]
    least: int = 4
    """Fields without which a line is none."""
    _at: dict[str, int] = field(init=False, repr=False, compare=False)
    """The first line of each name: whoever is root in the jail can write any number of them."""

    def __post_init__(self) -> None:
        self._at = {row[0]: index for index, row in reversed(list(enumerate(self.rows)))}

    @staticmethod
    def parse(text: str, least: int = 4) -> Table:
        """Read a file; lines without a colon are kept as they are."""
        # Not `splitlines`: a comment may have what only Unicode takes for the end of a line.
        return Table([line.split(":") for line in text.split("\n") if line], least)

    def find(self, name: str) -> list[str] | None:
        """The fields of a name. A line that lacks some is none, and is replaced by `put`."""
        row = self.rows[self._at[name]] if name in self._at else []
        return row if len(row) >= self.least else None

    def numbers(self) -> dict[int, str]:
        """The name of each number in the third field, as the C library reads it: Python takes more for digits."""
        known = (row for row in self.rows if len(row) > 2 and row[2].isascii() and row[2].isdigit())
        return {int(row[2]): row[0] for row in known if len(row[2]) <= 10}

    def put(self, row: list[str]) -> None:
        """Replace the line of this name, or add it."""
        if row[0] in self._at:
            self.rows[self._at[row[0]]] = row
        else:
            self._at[row[0]] = len(self.rows)
            self.rows.append(row)

    def text(self) -> str:
        """The file again."""
        return "".join(":".join(row) + "\n" for row in self.rows)


@dataclass
class Accounts:
    """The four files."""

    passwd: Table
    shadow: Table
    group: Table
    gshadow: Table = field(default_factory=lambda: Table([]))

    def copy(self) -> Accounts:
        """Another one of the same lines."""
        tables = (self.passwd, self.shadow, self.group, self.gshadow)
        return Accounts(*(Table(list(table.rows), table.least) for table in tables))


def conflicts(
    accounts: Accounts, declared: Declared, ours: Declared, elsewhere: frozenset[str] = frozenset()
) -> list[str]:
    """Everything that speaks against what is declared. `ours`: what the run before declared.

    `elsewhere`: groups that other roots have. In a new one they appear when what makes them is installed there, for
    which somebody has to log in first.

    Names and numbers by themselves were checked when they were written (config/rules/people.py).
    """
    found = []
    uids, known_gids = accounts.passwd.numbers(), accounts.group.numbers()
    for name, gid in sorted(declared.groups.items()):
        who, holder = ("group", name, gid), known_gids.get(gid)
        found += _number_conflict(who, holder, accounts.group, is_ours=name in ours.groups)
    gids = {*known_gids, *declared.groups.values()}
    for name, user in sorted(declared.users.items()):
        who, holder = ("user", name, user.uid), uids.get(user.uid)
        found += _number_conflict(who, holder, accounts.passwd, is_ours=name in ours.users)
        own = accounts.group.find(name)
        if user.gid not in gids and own is not None and own[2] != str(user.gid):
            found.append(f"user {name}: group {name} has gid {own[2]} in the jail, not {user.gid}")
        elif user.gid not in gids and name in declared.groups:
            found.append(
                f"user {name}: the own group would have gid {user.gid}, but the group {name} is declared with gid "
                f"{declared.groups[name]}; give one of them another name"
            )
        found += [
            f"user {name}: the group {wanted} is neither declared nor in the jail; add it to slurmstack:groups, or "
            "install what makes it"
            for wanted in user.groups
            if wanted not in declared.groups and wanted not in elsewhere and accounts.group.find(wanted) is None
        ]
    return found


def _number_conflict(who: tuple[str, str, int], holder: str | None, table: Table, *, is_ours: bool) -> list[str]:
    """What is wrong with the number of a user or group: they have another one, or others have it."""
    kind, name, number = who
    what, row = f"{kind[0]}id", table.find(name)
    found = [] if holder in {None, name} else [f"{kind} {name}: {what} {number} belongs to {holder} in the jail"]
    if row is not None and row[2] != str(number):
        whose = "has" if is_ours else "was not made by slurmstack and has"
        found.append(f"{kind} {name}: {whose} {what} {row[2]} in the jail, not {number}; files carry that number")
    return found


def apply(accounts: Accounts, declared: Declared, ours: Declared, today: int) -> Accounts:
    """The account files with what is declared in, and users of `ours` that are no longer declared locked.

    Declared groups have exactly the declared members. Any other group keeps the members that somebody added by hand,
    and loses those whom `ours` had put there. `today`: days since 1970. There are no conflicts.
    """
    result = accounts.copy()
    for name, gid in sorted(declared.groups.items()):
        if result.group.find(name) is None:
            _add_group(result, name, gid)
    gids = set(result.group.numbers())
    for name, user in sorted(declared.users.items()):
        if user.gid not in gids:
            _add_group(result, name, user.gid)
            gids.add(user.gid)
        _put_user(result, name, user, today)
    for name in sorted(set(ours.users) - set(declared.users)):
        _lock(result, name)
    for name in sorted({*declared.groups, *_named(declared), *_named(ours)}):
        _set_members(result, name, declared, ours)
    return result


def _named(declared: Declared) -> set[str]:
    """Groups that users name."""
    return {group for user in declared.users.values() for group in user.groups}


def _set_members(accounts: Accounts, group: str, declared: Declared, ours: Declared) -> None:
    members = sorted(name for name, user in declared.users.items() if group in user.groups)
    of_ours = {name for name, user in ours.users.items() if group in user.groups}
    for table in (accounts.group, accounts.gshadow):
        found = table.find(group)
        if found is not None:
            by_hand = [name for name in found[3].split(",") if name and name not in {*members, *of_ours}]
            kept = [] if group in declared.groups else by_hand
            table.put([*found[:3], ",".join([*kept, *members])])


def _put_user(accounts: Accounts, name: str, user: User, today: int) -> None:
    old = accounts.passwd.find(name)
    comment, home = (old[4], old[5]) if old else ("", f"/home/{name}")
    accounts.passwd.put([name, "x", str(user.uid), str(user.gid), comment, home, user.shell])
    shadow = accounts.shadow.find(name)
    if shadow is None:
        accounts.shadow.put([name, NO_PASSWORD, str(today), "0", "99999", "7", "", "", ""])
    elif shadow[1].startswith(LOCKED):
        # Declared again after it was locked. A password that a user set by hand (for sudo) is left alone.
        accounts.shadow.put([name, shadow[1].lstrip(LOCKED) or NO_PASSWORD, *shadow[2:]])


def _lock(accounts: Accounts, name: str) -> None:
    passwd, shadow = accounts.passwd.find(name), accounts.shadow.find(name)
    if passwd is not None:
        accounts.passwd.put([*passwd[:6], NOLOGIN])
    if shadow is not None and not shadow[1].startswith(LOCKED):
        accounts.shadow.put([name, LOCKED, *shadow[2:]])


def _add_group(accounts: Accounts, name: str, gid: int) -> None:
    accounts.group.put([name, "x", str(gid), ""])
    accounts.gshadow.put([name, "!", "", ""])
