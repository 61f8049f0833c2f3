"""Accounts in all roots of a jail's volume, and in no other place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from images.common import jail_roots
from images.common.jail_view import JailViewError
from images.common.process import CannotGoOnError
from images.jail import users
from images.jail.accounts import AccountError, Declared, User
from images.jail.users import apply_everywhere
from tests.programs.images.jail_roots.filled import fill, nothing_said

ME = os.getuid() or 10001


def apply(volume: Path, **users: User) -> list[str]:
    said: list[str] = []
    apply_everywhere(volume, Declared(users=users), said.append)
    return said


def user(uid: int = ME, **more: Any) -> User:
    return User(**{"uid": uid, "gid": uid, **more})


def test_a_number_is_remembered_when_its_root_is_gone(source: Path, volume: Path) -> None:
    fill(source, volume, "blue")
    jail_roots.keep_numbers(volume, users={ME: "bob", 7: "x"}, groups={20001: "team"})
    jail_roots.keep_numbers(volume, users={ME: "somebody else"}, groups={})

    with pytest.raises(AccountError, match=f"uid {ME} was that of bob in a root that was removed.*/.numbers.json"):
        apply(volume, carol=user())
    apply(volume, bob=user())
    with pytest.raises(AccountError, match="group others: gid 20001 was that of team in a root that was removed"):
        apply_everywhere(volume, Declared(groups={"others": 20001}), nothing_said)


@pytest.mark.parametrize("path", ["etc", "etc/ssh", "etc/sudoers.d", ".slurmstack", "etc/passwd"])
def test_a_link_in_one_root_leads_the_accounts_into_no_other(source: Path, volume: Path, path: str) -> None:
    fill(source, volume, "")
    fill(source, volume, "blue")
    apply(volume, alice=user(sudo=True))
    place = jail_roots.root_of(volume, "blue") / path
    place.rename(place.with_name("moved"))
    up = "/".join([".."] * (3 + path.count("/")))
    place.symlink_to(f"{up}/{path}")
    assert place.exists(), "the link leads into the first root"

    with pytest.raises((JailViewError, AccountError), match=r"is a symbolic link|symbolic links"):
        apply(volume)

    assert place.is_symlink()
    if path in {"etc", "etc/passwd"}:  # found before anything is written
        assert "alice:!" not in (volume / "etc/shadow").read_text()


HOLD = "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); input()"


def test_who_holds_the_lock_of_a_root_does_not_hold_this_up_for_ever(
    source: Path, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(source, volume, "")
    monkeypatch.setattr(users, "LOCK_SECONDS", 0.2)
    argv = [sys.executable, "-c", HOLD, str(volume / "etc/.pwd.lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(CannotGoOnError, match=r"another program has held .*\.pwd\.lock"):
            apply(volume, alice=user())
        holder.communicate(b"\n")
    apply(volume, alice=user())


def test_a_home_outside_of_the_root_is_not_made(source: Path, volume: Path) -> None:
    fill(source, volume, "")
    fill(source, volume, "blue")
    for root in (volume, jail_roots.root_of(volume, "blue")):
        with (root / "etc/passwd").open("a") as file:
            file.write(f"alice:x:{ME}:{ME}::/home/../../evil:/bin/bash\n")
    apply(volume, alice=user())
    assert not list(volume.parent.rglob("evil"))
