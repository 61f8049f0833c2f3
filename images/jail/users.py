"""users FILE: makes the jail's accounts what the stack file declares.

Runs as a Kubernetes Job whenever the declared users change. All is decided first (accounts.py); a conflict changes
nothing. Users who were declared once and no longer are get locked, their files stay; a group stays, without the members
that it had from here.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from images.common.files import write_atomically
from images.common.homes import make_home
from images.common.process import program
from images.common.readiness import wait_for_jail
from images.jail.accounts import AccountError, Accounts, Declared, Group, Table, User, apply, is_name

JAIL: Final = Path("/jail")
RECORD: Final = ".slurmstack/users.json"
"""The users and groups that we made, as they were declared at the last run."""

KEYS: Final = "etc/ssh/authorized_keys.d"
SUDOERS: Final = "etc/sudoers.d/slurmstack"
_FILES: Final = {"group": 0o644, "gshadow": 0o640, "shadow": 0o640, "passwd": 0o644}
"""In the order of writing: an account is complete when passwd names it."""

_STEPS: Final = 1000
"""Parts of a path that are looked at, with those of links, which may lead in a circle."""


def main() -> int:
    """Entry point."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: users FILE\n")
        return 64
    with program("users") as log:
        wait_for_jail(JAIL, log)
        declared = read_declared(Path(sys.argv[1]))
        with account_lock(JAIL):
            apply_users(JAIL, declared, log)
    return 0


def read_declared(path: Path) -> Declared:
    """The users and groups in a users.json; an absent file has none."""
    if not path.exists():
        return Declared()
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Declared(
            users={name: User.from_json(value) for name, value in (document.get("users") or {}).items()},
            groups={name: Group(**value) for name, value in (document.get("groups") or {}).items()},
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise AccountError(f"{path}: {error}") from error


@contextmanager
def account_lock(jail: Path) -> Iterator[None]:
    """Hold the lock that useradd and its like take, so that one of them in the jail and this program do not mix."""
    # Whoever is root in the jail may have put a link there, which leads to a file of this container.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(jail / "etc/.pwd.lock", flags, 0o600), "w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        yield


def apply_users(jail: Path, declared: Declared, log: Callable[[str], None]) -> None:
    """Make the jail's accounts, homes, keys and sudo rights what is declared. Raises AccountError before any change."""
    ours = read_declared(jail / RECORD)
    before = _read_accounts(jail)
    after = apply(before, declared, ours, today=int(time.time() // 86400))
    # Whoever is root in the jail can write the record: a name with slashes would lead out of the keys' directory.
    removed = {name for name in set(ours.users) - set(declared.users) if is_name(name)}
    # Recorded first: a run that is interrupted still knows later whom it made.
    _write_record(jail, _both(ours, declared))
    _write_accounts(jail, before, after)
    for name, user in sorted(declared.users.items()):
        row = after.passwd.find(name)
        make_home(jail, row[5] if row else f"/home/{name}", user.uid, user.gid)
    _write_keys(jail, declared.users, removed=removed)
    _write_sudoers(jail, declared.users)
    _write_record(jail, declared)
    for name in sorted(set(declared.users) - set(ours.users)):
        log(f"user {name} (uid {declared.users[name].uid}) is there")
    for name in sorted(removed):
        log(f"user {name} is no longer declared: locked; the files in /home/{name} stay")
    for shell, names in _absent_shells(jail, declared.users).items():
        log(
            f"the shell {shell} is not in the jail: {', '.join(names)} cannot log in until it is installed there, or "
            "slurmstack:users names another"
        )
    for name in sorted(set(ours.groups) - set(declared.groups)):
        log(f"group {name} is no longer declared: it stays, as files belong to its number {ours.groups[name].gid}")
    log(f"{len(declared.users)} users and {len(declared.groups)} groups are as declared")


def _absent_shells(jail: Path, declared: Mapping[str, User]) -> dict[str, list[str]]:
    """Shells that are no programs of the jail, and who has them. No conflict: they may be installed at any time."""
    wanting: dict[str, list[str]] = {}
    for name, user in sorted(declared.items()):
        wanting.setdefault(user.shell, []).append(name)
    return {shell: names for shell, names in wanting.items() if not _is_program(jail, shell)}


def _is_program(jail: Path, path: str) -> bool:
    """Whether a program is at a path of the jail. Links lead where they do for whoever is inside, not from here."""
    here: list[str] = []
    parts = path.split("/")[::-1]
    with suppress(OSError):  # a name that no file system takes
        for _ in range(_STEPS):
            if not parts:
                there = jail.joinpath(*here)
                return there.is_file() and os.access(there, os.X_OK)
            part = parts.pop()
            link = jail.joinpath(*here, part)
            if part == "..":
                del here[-1:]
            elif link.is_symlink():
                target = str(link.readlink())
                here = [] if target.startswith("/") else here
                parts += target.split("/")[::-1]
            elif part not in {"", "."}:
                here.append(part)
    return False


def _both(ours: Declared, declared: Declared) -> Declared:
    """What an interrupted run may have made: of a user in both, the groups of both."""
    users = {**ours.users, **declared.users}
    for name in set(ours.users) & set(declared.users):
        groups = dict.fromkeys((*ours.users[name].groups, *declared.users[name].groups))
        users[name] = replace(users[name], groups=tuple(groups))
    return Declared(users=users, groups={**ours.groups, **declared.groups})


def _read_accounts(jail: Path) -> Accounts:
    def table(name: str) -> Table:
        path = jail / "etc" / name
        return Table.parse(path.read_text(encoding="utf-8", errors="surrogateescape")) if path.exists() else Table([])

    return Accounts(table("passwd"), table("shadow"), table("group"), table("gshadow"))


def _write_accounts(jail: Path, before: Accounts, after: Accounts) -> None:
    for name, mode in _FILES.items():
        text = getattr(after, name).text()
        if text != getattr(before, name).text():
            path = jail / "etc" / name
            status = path.stat() if path.exists() else None
            owner = (status.st_uid, status.st_gid) if status else (os.getuid(), os.getgid())
            write_atomically(path, text.encode(errors="surrogateescape"), mode=mode, owner=owner)


def _write_keys(jail: Path, declared: Mapping[str, User], removed: set[str]) -> None:
    """Keys lie where only root can write; a user's own ~/.ssh/authorized_keys counts besides."""
    directory = jail / KEYS
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    for name, user in declared.items():
        content = "".join(f"{key.strip()}\n" for key in user.ssh_authorized_keys)
        write_atomically(directory / name, content, mode=0o644)
    for name in removed:
        (directory / name).unlink(missing_ok=True)


def _write_sudoers(jail: Path, declared: Mapping[str, User]) -> None:
    lines = [f"{name} ALL=(ALL:ALL) NOPASSWD: ALL\n" for name, user in sorted(declared.items()) if user.sudo]
    path = jail / SUDOERS
    if lines:
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        write_atomically(path, "# Written by slurmstack; changes are lost.\n" + "".join(lines), mode=0o440)
    else:
        path.unlink(missing_ok=True)


def _write_record(jail: Path, declared: Declared) -> None:
    (jail / RECORD).parent.mkdir(mode=0o755, exist_ok=True)
    document = {
        "users": {name: asdict(user) for name, user in sorted(declared.users.items())},
        "groups": {name: asdict(group) for name, group in sorted(declared.groups.items())},
    }
    write_atomically(jail / RECORD, json.dumps(document, indent=1) + "\n", mode=0o600)
