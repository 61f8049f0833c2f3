"""users FILE: makes the accounts of all roots in the jail's volume what the stack file declares.

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
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from images.common import jail_roots
from images.common.boundary import own_directory
from images.common.files import read_untrusted, write_atomically
from images.common.jail_view import held, homes_directory, make_home
from images.common.mountinfo import expect_volume
from images.common.process import CannotGoOnError, program
from images.common.readiness import ACCOUNTS_MARKER, HOMES_APART
from images.common.wait import wait_for
from images.jail.accounts import AccountError, Accounts, Declared, Table, User, apply, conflicts, expect_number, is_name

JAIL: Final = Path("/jail")
STATE: Final = ".slurmstack"
RECORD: Final = f"{STATE}/users.json"
"""The users and groups that we made, as they were declared at the last run."""

KEYS: Final = "etc/ssh/authorized_keys.d"
SUDOERS: Final = "etc/sudoers.d/slurmstack"
_FILES: Final = {"group": 0o644, "gshadow": 0o640, "shadow": 0o640, "passwd": 0o644}
"""In the order of writing: an account is complete when passwd names it."""

MOST: Final = 2 * 2**20
"""Bytes of a file of accounts, and of the record: twenty thousand users have less."""

LOCK_SECONDS: Final = 60.0
"""For another program to be done with the accounts of a root. useradd itself waits for 15."""


def main() -> int:
    """Entry point."""
    if len(sys.argv) != 2:
        sys.stderr.write("usage: users FILE\n")
        return 64
    with program("users") as log:
        expect_volume(JAIL)
        if (homes := homes_directory()) is not None:
            expect_volume(homes)
        jail_roots.refuse_other_homes(JAIL, apart=homes is not None)
        name = os.environ.get("JAIL_ROOT", "")
        # Not by the marker in it, which whoever is root in it can take away: the accounts of all roots would wait.
        missing = f"{jail_roots.called(name)}: it is not whole yet (the job that populates it is at work)"
        wait_for(missing, lambda: jail_roots.filled(JAIL, name) is not None, log)
        jail_roots.refuse_other_homes(JAIL, apart=homes is not None)
        if homes is not None:
            own_directory(homes)  # a fresh volume often is everybody's
        file = Path(sys.argv[1])
        apply_everywhere(JAIL, _declared(file.read_bytes(), file), log, homes)
    return 0


def apply_everywhere(volume: Path, declared: Declared, log: Callable[[str], None], homes: Path | None = None) -> None:
    """Make the accounts of all roots what is declared. Raises AccountError before any change.

    `homes`: a volume of their own, which has the name that it has in the jail.

    Of all: pods that have not ended yet lead into the root before, and anybody may go back to it. Numbers of those who
    have left are looked up in all of them, too: their homes are in each.
    """
    roots = {name: jail_roots.root_of(volume, name) for name in jail_roots.whole(volume)}
    with ExitStack() as locks:
        for name, jail in roots.items():
            with _telling(name):
                locks.enter_context(account_lock(jail))
        known = {name: (_read_accounts(jail), read_record(jail)) for name, jail in roots.items()}
        groups = frozenset(row[0] for accounts, _ in known.values() for row in accounts.group.rows)
        problems = _of_removed(volume, declared, [ours for _, ours in known.values()])
        for name, (accounts, ours) in known.items():
            found = conflicts(accounts, declared, ours, groups)
            problems += [f"{jail_roots.called(name)}: {line}" if len(roots) > 1 else line for line in found]
        if problems:
            raise AccountError("\n".join(problems))
        for name, jail in roots.items():
            if len(roots) > 1:
                log(f"{jail_roots.called(name)}:")
            with _telling(name):
                _apply(jail, declared, log, *known[name], volume=volume, homes=homes)
            with _inside(jail, STATE, make=True) as state:
                where = "" if homes is None else json.dumps(HOMES_APART)
                write_atomically(state / ACCOUNTS_MARKER.name, where, mode=0o644)


@contextmanager
def _telling(name: str) -> Iterator[None]:
    """Say in which root something is in the way that whoever is root in it has put there."""
    try:
        yield
    except OSError as error:
        what = [Path(str(path)).name for path in (error.filename2 or error.filename,) if path]
        raise CannotGoOnError(": ".join([jail_roots.called(name), *what, error.strerror or str(error)])) from error


def numbers_of(jail: Path) -> dict[str, dict[int, str]]:
    """Numbers of all users and groups that a root has, and had from us: these names count, whoever else has the number.

    Raises AccountError, JailViewError.
    """
    ours, there = read_record(jail), _read_accounts(jail)
    users = there.passwd.numbers() | {user.uid: name for name, user in ours.users.items()}
    groups = there.group.numbers() | {gid: name for name, gid in ours.groups.items()}
    return {"users": users, "groups": groups}


def _of_removed(volume: Path, declared: Declared, known: list[Declared]) -> list[str]:
    """Conflicts with numbers that users and groups had in roots that are gone.

    `known`: what the roots that are there had declared. Whoever has a number in them keeps it: whoever was root in a
    removed one could write any name beside it there.
    """
    found = []
    for kind, what in (("users", "user {}: uid"), ("groups", "group {}: gid")):
        kept, wanted = jail_roots.kept_numbers(volume, kind), _pairs(declared, kind)
        found += [
            f"{what.format(name)} {number} was that of {kept[number]} in a root that was removed; files carry that "
            f"number. Take another one, or delete it in {jail_roots.ROOTS}/{jail_roots.NUMBERS} of the jail's volume"
            for name, number in sorted(wanted.difference(*(_pairs(ours, kind) for ours in known)))
            if kept.get(number, name) != name
        ]
    return found


def _pairs(declared: Declared, kind: str) -> set[tuple[str, int]]:
    """Names of `users` or `groups`, with their numbers."""
    return (
        {(name, user.uid) for name, user in declared.users.items()} if kind == "users" else {*declared.groups.items()}
    )


@contextmanager
def account_lock(jail: Path) -> Iterator[None]:
    """Hold the lock that useradd and its like take, so that one of them in the jail and this program do not mix.

    Raises CannotGoOnError where whoever holds it does not let go.
    """
    # Whoever is root in the jail may have put a link there, which leads to a file of this container.
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with _inside(jail, "etc") as etc, os.fdopen(os.open(etc / ".pwd.lock", flags, 0o600), "w") as lock:
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):
                if time.monotonic() > until:
                    raise CannotGoOnError(
                        f"another program has held {jail}/etc/.pwd.lock for {LOCK_SECONDS:.0f} s"
                    ) from None
                time.sleep(0.1)
        yield


@contextmanager
def _inside(jail: Path, path: str, *, make: bool = False) -> Iterator[Path]:
    """A directory of the jail that stays the same, whatever root in the jail makes of the way to it meanwhile.

    Raises JailViewError where a link is on the way: it could lead into another root.
    """
    with held(jail, path, make=make) as descriptor:
        yield Path(f"/proc/self/fd/{descriptor}")


def read_record(jail: Path) -> Declared:
    """Those that we made in a root, as they were declared at the last run. Whoever is root in it can write there."""
    path = jail / RECORD
    with _inside(jail, STATE, make=True) as state:
        try:
            content = read_untrusted(state / path.name, MOST)
        except OSError as error:
            raise AccountError(f"{path}: {error.strerror}") from error
    return Declared() if content is None else _declared(content, path)


def _declared(content: bytes, path: Path) -> Declared:
    try:
        document = json.loads(content)
        groups = {name: value["gid"] for name, value in (document.get("groups") or {}).items()}
        expect_number(*groups.values())
        users = {name: User.from_json(value) for name, value in (document.get("users") or {}).items()}
        return Declared(users=users, groups=groups)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise AccountError(f"{path}: {error}") from error


def _apply(
    jail: Path,
    declared: Declared,
    log: Callable[[str], None],
    before: Accounts,
    ours: Declared,
    *,
    volume: Path,
    homes: Path | None,
) -> None:
    """Make a root's accounts, homes, keys and sudo rights what is declared.

    `ours`: what the run before declared. `volume`: where homes are; `homes`: those of /home, if on their own volume.
    """
    after = apply(before, declared, ours, int(time.time() // 86400))
    # Whoever is root in the jail can write the record: a name with slashes would lead out of the keys' directory.
    removed = {name for name in set(ours.users) - set(declared.users) if is_name(name)}
    # Recorded first: a run that is interrupted still knows later whom it made.
    _write_record(jail, _both(ours, declared))
    _write_accounts(jail, before, after)
    for name, user in sorted(declared.users.items()):
        row = after.passwd.find(name)
        _make_home(jail, volume, homes, row[5] if row else f"/home/{name}", user)
    _write_keys(jail, declared.users, removed=removed)
    _write_sudoers(jail, declared.users)
    _write_record(jail, declared)
    _log_changes(declared, ours, after, log)


def _log_changes(declared: Declared, ours: Declared, after: Accounts, log: Callable[[str], None]) -> None:
    for name in sorted(set(declared.users) - set(ours.users)):
        log(f"user {name} (uid {declared.users[name].uid}) is there")
    for name in sorted(set(ours.users) - set(declared.users)):
        if is_name(name):
            log(f"user {name} is no longer declared: locked; the files in /home/{name} stay")
    absent = {group for user in declared.users.values() for group in user.groups if after.group.find(group) is None}
    for group in sorted(absent):
        log(f"the group {group} is not in this root yet: its members are when it was installed and this ran again")
    for name in sorted(filter(is_name, set(ours.groups) - set(declared.groups))):
        log(f"group {name} is no longer declared: it stays, as files belong to its number {ours.groups[name]}")
    log(f"{len(declared.users)} users and {len(declared.groups)} groups are as declared")


def _make_home(jail: Path, volume: Path, homes: Path | None, home: str, user: User) -> None:
    """In the root, or where all roots have it. The path is from a file that whoever is root in the jail can write."""
    parts = [part for part in home.split("/") if part]
    if not parts or ".." in parts:
        return
    where = volume if parts[0] in jail_roots.SHARED else jail
    if homes is not None and parts[0] == homes.name:
        where = homes.parent
    make_home(where, "/" + "/".join(parts), user.uid, user.gid, jail)


def _both(ours: Declared, declared: Declared) -> Declared:
    """What an interrupted run may have made: of a user in both, the groups of both."""
    users = {**ours.users, **declared.users}
    for name in set(ours.users) & set(declared.users):
        groups = dict.fromkeys((*ours.users[name].groups, *declared.users[name].groups))
        users[name] = replace(users[name], groups=tuple(groups))
    return Declared(users=users, groups={**ours.groups, **declared.groups})


def _read_accounts(jail: Path) -> Accounts:
    with _inside(jail, "etc") as etc:
        return Accounts(**{name: Table.parse(_text(etc / name), 7 if name == "passwd" else 4) for name in _FILES})


def _text(path: Path) -> str:
    """A file of accounts; an absent one is empty. Raises AccountError where it is none."""
    try:
        content = read_untrusted(path, MOST) or b""
    except OSError as error:
        raise AccountError(f"/etc/{path.name} in the jail cannot be read: {error.strerror}") from error
    return content.decode(errors="surrogateescape")


def _write_accounts(jail: Path, before: Accounts, after: Accounts) -> None:
    with _inside(jail, "etc") as etc:
        for name, mode in _FILES.items():
            text = getattr(after, name).text()
            if text != getattr(before, name).text():
                path = etc / name
                status = path.lstat() if path.exists() else None
                owner = (status.st_uid, status.st_gid) if status else (os.getuid(), os.getgid())
                write_atomically(path, text.encode(errors="surrogateescape"), mode=mode, owner=owner)


def _write_keys(jail: Path, declared: Mapping[str, User], removed: set[str]) -> None:
    """Keys lie where only root can write; a user's own ~/.ssh/authorized_keys counts besides."""
    with _inside(jail, KEYS, make=True) as directory:
        for name, user in declared.items():
            content = "".join(f"{key.strip()}\n" for key in user.ssh_authorized_keys)
            write_atomically(directory / name, content, mode=0o644)
        for name in removed:
            (directory / name).unlink(missing_ok=True)


def _write_sudoers(jail: Path, declared: Mapping[str, User]) -> None:
    lines = [f"{name} ALL=(ALL:ALL) NOPASSWD: ALL\n" for name, user in sorted(declared.items()) if user.sudo]
    directory, _, file = SUDOERS.rpartition("/")
    if not lines and not os.path.lexists(jail / directory):
        return
    with _inside(jail, directory, make=True) as sudoers:
        if lines:
            write_atomically(
                sudoers / file, "# Written by slurmstack; changes are lost.\n" + "".join(lines), mode=0o440
            )
        else:
            (sudoers / file).unlink(missing_ok=True)


def _write_record(jail: Path, declared: Declared) -> None:
    document = {
        "users": {name: asdict(user) for name, user in sorted(declared.users.items())},
        "groups": {name: {"gid": gid} for name, gid in sorted(declared.groups.items())},
    }
    with _inside(jail, STATE, make=True) as state:
        write_atomically(state / Path(RECORD).name, json.dumps(document, indent=1) + "\n", mode=0o600)
