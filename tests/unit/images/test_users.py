"""The jail's accounts: what is declared is there, what is not is locked, and a conflict changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from images.jail import users
from images.jail.accounts import AccountError, Accounts, Declared, Table, User, apply, conflicts
from images.jail.users import account_lock, apply_everywhere, read_record

KEY = "ssh-ed25519 AAAA alice@laptop"


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    etc = tmp_path / "etc"
    etc.mkdir()
    (tmp_path / ".slurmstack").mkdir()
    (tmp_path / ".slurmstack/populated").write_text('{"version": "24.11-a"}')
    (etc / "passwd").write_text(
        "root:x:0:0:root:/root:/bin/bash\nslurm:x:64030:64030::/nonexistent:/usr/sbin/nologin\n"
    )
    (etc / "shadow").write_text("root:*:20000:0:99999:7:::\nslurm:!:20000::::::\n")
    (etc / "group").write_text("root:x:0:\nvideo:x:44:\nslurm:x:64030:\n")
    (etc / "gshadow").write_text("root:*::\nvideo:*::\nslurm:!::\n")
    return tmp_path


def user(**changes: Any) -> User:
    # Owned by the user who runs the tests, so that they need no root.
    values: dict[str, Any] = {"uid": os.getuid() or 10001, "gid": os.getgid() or 10001, **changes}
    return User(**values)


def declare(jail: Path, **users: User) -> list[str]:
    log: list[str] = []
    apply_everywhere(jail, Declared(users=users), log.append)
    return log


def line(jail: Path, name: str, key: str) -> list[str] | None:
    return Table.parse((jail / "etc" / name).read_text()).find(key)


def test_a_link_that_root_in_the_jail_put_in_the_locks_place_is_not_followed(jail: Path, tmp_path: Path) -> None:
    (jail / "etc/.pwd.lock").symlink_to(tmp_path / "made")

    with pytest.raises(OSError, match="symbolic links"):
        account_lock(jail).__enter__()

    assert not (tmp_path / "made").exists()


def test_a_name_that_root_in_the_jail_wrote_into_the_record_removes_no_other_file(jail: Path) -> None:
    declare(jail, alice=user())
    record = jail / ".slurmstack/users.json"
    document = json.loads(record.read_text())
    document["users"]["../../passwd"] = document["users"]["alice"] | {"uid": 10009}
    record.write_text(json.dumps(document))
    declare(jail, alice=user())
    assert (jail / "etc/passwd").exists()


def test_a_user_who_is_no_longer_declared_is_locked_and_keeps_the_home(jail: Path) -> None:
    declare(jail, alice=user(ssh_authorized_keys=(KEY,), groups=("video",), sudo=True))

    log = declare(jail)

    shadow = line(jail, "shadow", "alice") or []
    assert shadow[1].startswith("!")
    assert (line(jail, "passwd", "alice") or [])[6] == "/usr/sbin/nologin"
    assert not (jail / "etc/ssh/authorized_keys.d/alice").exists()
    assert not (jail / "etc/sudoers.d/slurmstack").exists()
    assert "alice" not in (line(jail, "group", "video") or [])[3]
    assert (jail / "home/alice").is_dir()
    assert any("locked" in entry for entry in log)

    declare(jail, alice=user())  # and can log in again

    assert (line(jail, "shadow", "alice") or [])[1] == "*"
    assert (line(jail, "passwd", "alice") or [])[6] == "/bin/bash"


def test_a_password_that_a_user_set_for_sudo_stays(jail: Path) -> None:
    declare(jail, alice=user())
    text = (jail / "etc/shadow").read_text().replace("alice:*:", "alice:$y$hash:")
    (jail / "etc/shadow").write_text(text)

    declare(jail, alice=user(shell="/bin/sh"))

    assert (line(jail, "shadow", "alice") or [])[1] == "$y$hash"
    assert (line(jail, "passwd", "alice") or [])[6] == "/bin/sh"


def test_a_changed_uid_is_refused_because_files_carry_the_old_one(jail: Path) -> None:
    declare(jail, alice=user())

    with pytest.raises(AccountError, match="files carry that number"):
        declare(jail, alice=user(uid=20002))


@pytest.mark.parametrize("at", ["_write_accounts", "_write_keys"])
def test_an_interrupted_run_still_knows_later_what_it_made(
    jail: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    (jail / "etc/group").open("a").write("docker:x:1500:\n")
    declare(jail, alice=user(groups=("docker",)))
    with monkeypatch.context() as patch:
        patch.setattr(users, at, lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            declare(jail, alice=user(groups=("video",)))
    declare(jail, alice=user())
    assert [(line(jail, "group", name) or [])[3] for name in ("video", "docker")] == ["", ""]


@pytest.mark.parametrize("place", [".slurmstack/users.json", "etc/passwd", "etc/group", "etc/shadow"])
def test_no_pipe_link_or_endless_file_of_root_in_the_jail_holds_this_up(jail: Path, place: str) -> None:
    path, elsewhere = jail / place, jail / "elsewhere"
    path.unlink(missing_ok=True)
    elsewhere.write_text("{}")

    os.mkfifo(path)
    with pytest.raises(AccountError, match=f"{path.name}.* it is no file"):
        declare(jail, alice=user())
    path.unlink()
    path.symlink_to(elsewhere)
    with pytest.raises(AccountError, match=f"{path.name}.* symbolic links"):
        declare(jail, alice=user())
    path.unlink()
    path.touch()
    os.truncate(path, 2**40)
    with pytest.raises(AccountError, match=f"{path.name}.* more than"):
        declare(jail, alice=user())


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"users": {"alice": {"uid": 1e99, "gid": 1}}}',
        '{"users": {"alice": {"uid": 1, "gid": 1, "groups": [[]]}}}',
        '{"groups": {"ml": {"gid": 1e999}}}',
    ],
)
def test_whatever_root_in_the_jail_writes_into_the_record_is_a_clear_error(jail: Path, text: str) -> None:
    (jail / ".slurmstack/users.json").write_text(text)
    with pytest.raises(AccountError, match=r"users\.json"):
        read_record(jail)


NOTHING = Declared()
ML = 20001


@pytest.fixture
def accounts() -> Accounts:
    """A jail's files with two groups of the system, and one that somebody made by hand."""
    return Accounts(
        passwd=Table.parse("root:x:0:0:root:/root:/bin/bash\nvisitor:x:1234:1234::/home/visitor:/bin/bash\n"),
        shadow=Table.parse("root:*:20000:0:99999:7:::\nvisitor:*:20000:0:99999:7:::\n"),
        group=Table.parse("root:x:0:\nvideo:x:44:\ndocker:x:1500:visitor\n"),
        gshadow=Table.parse("root:*::\nvideo:*::\ndocker:!::visitor\n"),
    )


def alice(*groups: str, uid: int = 10001, gid: int | None = None) -> User:
    return User(uid=uid, gid=gid or uid, groups=groups)


def after(accounts: Accounts, *steps: Declared) -> Accounts:
    """The files after these declarations, one after the other."""
    before = NOTHING
    for declared in steps:
        accounts, before = apply(accounts, declared, before, today=20000), declared
    return accounts


def members(accounts: Accounts, group: str) -> str:
    row, shadow = accounts.group.find(group), accounts.gshadow.find(group)
    assert row is not None
    assert shadow is not None
    assert row[3] == shadow[3], "both files say the same"
    return row[3]


def test_a_declared_group_has_no_members_but_the_declared(accounts: Accounts) -> None:
    """slurmctld knows only the declared ones: another would be a member in some places and not in others."""
    declared = Declared(users={"alice": alice("ml")}, groups={"ml": ML})
    by_hand = after(accounts, declared)
    by_hand.group.put(["ml", "x", "20001", "alice,visitor"])

    assert members(apply(by_hand, declared, declared, today=20000), "ml") == "alice"


def test_members_that_somebody_added_to_other_groups_stay(accounts: Accounts) -> None:
    first = Declared(users={"alice": alice("docker")})
    assert members(after(accounts, first), "docker") == "visitor,alice"

    assert members(after(accounts, first, Declared(users={"alice": alice()})), "docker") == "visitor"


CONFLICTS = {
    "group video: was not made by slurmstack and has gid 44 in the jail, not 20001": Declared(groups={"video": ML}),
    "group ml: gid 1500 belongs to docker in the jail": Declared(groups={"ml": 1500}),
    "the group nowhere is neither declared nor in the jail": Declared(users={"alice": alice("nowhere")}),
    "the group alice is declared with gid 20001": Declared(users={"alice": alice()}, groups={"alice": ML}),
}


def test_a_conflict_is_named(accounts: Accounts) -> None:
    for message, declared in CONFLICTS.items():
        (found,) = conflicts(accounts, declared, NOTHING)
        assert message in found
