"""The account files of the jail (passwd, shadow, group, gshadow) as values, and what declared users make of them.

Pure: nothing is read or written here, so that all is decided before anything is changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

NOLOGIN: Final = "/usr/sbin/nologin"
LOCKED: Final = "!"
NO_PASSWORD: Final = "*"  # noqa: S105 - no password at all
"""No password matches, but keys do: sshd without PAM refuses accounts that are locked with `!`."""

FIRST_FREE_GID: Final = 30000
"""Groups that are named but not numbered by the configuration get numbers from here."""

_USER_NAME: Final = re.compile(r"^[a-z_][a-z0-9_-]{0,31}$")


class AccountError(Exception):
    """The declared users do not fit the jail; nothing was changed. Every conflict is in the message."""


@dataclass(frozen=True, kw_only=True)
class User:
    """A user as declared."""

    uid: int
    gid: int
    groups: tuple[str, ...] = ()
    shell: str = "/bin/bash"
    ssh_authorized_keys: tuple[str, ...] = ()
    sudo: bool = False

    @staticmethod
    def from_json(value: Mapping[str, object]) -> User:
        """From one entry of users.json."""
        data = dict(value)
        for key in ("groups", "ssh_authorized_keys"):
            data[key] = tuple(data.get(key) or ())  # type: ignore[arg-type]
        if not data.get("shell"):
            data.pop("shell", None)
        return User(**data)  # type: ignore[arg-type]


@dataclass
class Table:
    """A file of lines with fields that are separated by colons, the first of which is a name."""

    rows: list[list[str]]

    @staticmethod
    def parse(text: str) -> Table:
        """Read a file; lines without a colon are kept as they are."""
        return Table([line.split(":") for line in text.splitlines() if line])

    def find(self, name: str) -> list[str] | None:
        """The fields of a name."""
        return next((row for row in self.rows if row[0] == name), None)

    def put(self, row: list[str]) -> None:
        """Replace the line of this name, or add it."""
        for index, old in enumerate(self.rows):
            if old[0] == row[0]:
                self.rows[index] = row
                return
        self.rows.append(row)

    def text(self) -> str:
        """The file again."""
        return "".join(":".join(row) + "\n" for row in self.rows)

    def copy(self) -> Table:
        """A copy that can be changed."""
        return Table([list(row) for row in self.rows])


@dataclass
class Accounts:
    """The four files."""

    passwd: Table
    shadow: Table
    group: Table
    gshadow: Table = field(default_factory=lambda: Table([]))

    def copy(self) -> Accounts:
        """A copy that can be changed."""
        return Accounts(self.passwd.copy(), self.shadow.copy(), self.group.copy(), self.gshadow.copy())


def conflicts(accounts: Accounts, declared: Mapping[str, User], ours: Mapping[str, User]) -> list[str]:
    """Everything that speaks against the declared users. `ours`: the users of the run before."""
    found = []
    by_uid = {int(row[2]): row[0] for row in accounts.passwd.rows if len(row) > 2 and row[2].isdigit()}
    by_gid = {int(row[2]): row[0] for row in accounts.group.rows if len(row) > 2 and row[2].isdigit()}
    uids: dict[int, str] = {}
    for name, user in sorted(declared.items()):
        if not _USER_NAME.match(name):
            found.append(f"user {name!r}: not a valid user name")
        if user.uid < 1000 or user.gid < 1:
            found.append(f"user {name}: uid {user.uid} and gid {user.gid}: uids below 1000 belong to the system")
        if user.uid in uids:
            found.append(f"users {uids[user.uid]} and {name} have the same uid {user.uid}")
        uids[user.uid] = name
        holder = by_uid.get(user.uid)
        if holder not in {None, name}:
            found.append(f"user {name}: uid {user.uid} belongs to {holder} in the jail")
        row = accounts.passwd.find(name)
        if row is not None and int(row[2]) != user.uid:
            whose = "has" if name in ours else "was not made by slurmstack and has"
            found.append(f"user {name}: {whose} uid {row[2]} in the jail, not {user.uid}; files carry that number")
        group = accounts.group.find(name)
        if group is not None and int(group[2]) != user.gid and user.gid not in by_gid:
            found.append(f"user {name}: group {name} has gid {group[2]} in the jail, not {user.gid}")
    return found


def apply(accounts: Accounts, declared: Mapping[str, User], ours: Mapping[str, User], today: int) -> Accounts:
    """The account files with the declared users in, and users of `ours` that are no longer declared locked.

    `today`: days since 1970. Raises AccountError and leaves its arguments as they are.
    """
    problems = conflicts(accounts, declared, ours)
    if problems:
        raise AccountError("\n".join(problems))
    result = accounts.copy()
    for name, user in sorted(declared.items()):
        _put_user(result, name, user, today)
    for name in sorted(set(ours) - set(declared)):
        _lock(result, name)
    for name in sorted({*declared, *ours}):
        wanted = set(declared[name].groups) if name in declared else set()
        had = set(ours[name].groups) if name in ours else set()
        for group in sorted(wanted):
            _set_member(result, group, name, member=True)
        for group in sorted(had - wanted):
            _set_member(result, group, name, member=False)
    return result


def _put_user(accounts: Accounts, name: str, user: User, today: int) -> None:
    if not any(row[2] == str(user.gid) for row in accounts.group.rows if len(row) > 2):
        _add_group(accounts, name, user.gid)
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


def _set_member(accounts: Accounts, group: str, user: str, *, member: bool) -> None:
    row = accounts.group.find(group)
    if row is None:
        if not member:
            return
        taken = {int(other[2]) for other in accounts.group.rows if len(other) > 2 and other[2].isdigit()}
        _add_group(accounts, group, next(gid for gid in range(FIRST_FREE_GID, 60000) if gid not in taken))
    for table in (accounts.group, accounts.gshadow):
        found = table.find(group)
        if found is None or len(found) < 4:
            continue
        members = [name for name in found[3].split(",") if name and name != user]
        table.put([*found[:3], ",".join([*members, user] if member else members)])
