"""What PAM is told, shares of a login node, and homes that are made; tests/slurm/test_login.py logs in."""

from __future__ import annotations

import os
import pwd
import resource
from pathlib import Path

import pytest

from images.common.cgroups import CannotConfineError, Subtree
from images.common.command import Runner, run
from images.common.jail_view import JailViewError, make_home
from images.login import make_home as make_home_program
from images.login.sshd import OUR_MODULE, limits_file, pam_service, set_up_shares

LIMITS = {"nproc": 200, "as": 4194304, "maxlogins": 3}


def test_a_limit_above_the_pod_s_own_becomes_that_as_no_login_would_work_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 600))
    said: list[str] = []

    text = limits_file({"nofile": 601, "cpu": 11, "nproc": 600}, said.append)

    assert text.splitlines()[2:] == ["* - nofile 600", "* - cpu 10", "* - nproc 600"]
    assert said == [
        "login.user_limits: nofile is 600 instead of 601: more is not allowed to this pod",
        "login.user_limits: cpu is 10 instead of 11: more is not allowed to this pod",
    ]


def test_pam_never_authenticates_and_always_looks_whether_the_account_is_expired() -> None:
    for limits in ({}, LIMITS):
        for sssd in (False, True):
            lines = pam_service(limits, sssd=sssd).splitlines()
            assert [line for line in lines if line.startswith("auth")] == ["auth required pam_deny.so"]
            account = [line for line in lines if line.startswith("account") and "pam_exec" not in line]
            assert account[:2] == [f"account required {module}" for module in (OUR_MODULE, "pam_unix.so")], (
                "before anything that is sufficient"
            )


def test_what_a_session_may_become_is_narrowed_last() -> None:
    for sssd in (False, True):
        session = [line for line in pam_service(LIMITS, sssd=sssd).splitlines() if line.startswith("session")]
        assert session[-1] == f"session required {OUR_MODULE}"


@pytest.mark.parametrize(
    ("own", "users", "connections"), [(8192, 7168, 768), (1280, 1120, 120), (640, 480, 120), (64, 48, 12)]
)
def test_all_shares_together_are_less_than_the_login_node_has(
    tmp_path: Path, own: int, users: int, connections: int
) -> None:
    taken: list[tuple[object, ...]] = []

    def take(_: str, __: str, memory: int | None, ___: Runner) -> Subtree:
        taken.append(("users", memory))
        return Subtree(how="remounted", swap=True)

    def make(name: str, memory: int | None) -> None:
        taken.append((name, memory))

    set_up_shares({}, run, print, take=take, make=make, limit=lambda: own * 2**20, file=tmp_path / "shares")

    assert taken == [("users", users * 2**20), ("connections", connections * 2**20)]


def test_without_cgroups_there_are_no_shares_and_the_log_says_why(tmp_path: Path) -> None:
    def cannot(*_: object) -> Subtree:
        raise CannotConfineError("the reason")

    file, said = tmp_path / "shares", list[str]()
    file.write_text("of the container's start before")
    set_up_shares({"total_cpus": 100}, run, said.append, take=cannot, limit=lambda: None, file=file)

    assert not file.exists()
    assert said == ["users share this login node's CPU and memory as they come: the reason"]


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    (tmp_path / "etc/skel").mkdir(parents=True)
    (tmp_path / "etc/skel/.bashrc").write_text("# skeleton\n")
    return tmp_path


def test_nobody_gets_into_a_home_while_it_is_given_away(jail: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (jail / "etc/skel/.config/app").mkdir(parents=True)
    (jail / "etc/skel/.config/app/settings").touch()
    given: list[str] = []
    fchown = os.fchown

    def give(descriptor: int, uid: int, gid: int) -> None:
        place = Path(f"/proc/self/fd/{descriptor}").readlink()
        way = [parent for parent in place.relative_to(jail / "home").parents if parent.name]
        assert (jail / "home" / way[-1]).stat().st_mode & 0o077 == 0, f"others could replace what leads to {place}"
        given.append(place.name)
        fchown(descriptor, uid, gid)

    monkeypatch.setattr(os, "fchown", give)
    assert make_home(jail, "/home/lena", os.getuid(), os.getgid())
    assert {"settings", "app", ".config", "home"} <= set(given)
    assert (jail / "home/lena/.config/app/settings").exists()


def test_of_a_skeleton_links_are_taken_as_they_are_and_nothing_that_holds_up(jail: Path) -> None:
    skeleton = jail / "etc/skel"
    (skeleton / "key").symlink_to("/secrets/ssh/key")
    (skeleton / "tool").write_text("tool")
    (skeleton / "tool").chmod(0o4755)
    os.mkfifo(skeleton / "pipe")

    assert make_home(jail, "/home/lena", os.getuid(), os.getgid())

    home = jail / "home/lena"
    assert sorted(path.name for path in home.iterdir()) == [".bashrc", "key", "tool"]
    assert str((home / "key").readlink()) == "/secrets/ssh/key"
    assert (home / "tool").stat().st_mode & 0o7777 == 0o755


def test_a_home_is_never_made_through_a_symbolic_link(jail: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (jail / "home").symlink_to(outside)

    with pytest.raises(JailViewError, match="/home is a symbolic link"):
        make_home(jail, "/home/lena", os.getuid(), os.getgid())

    assert not list(outside.iterdir())


@pytest.mark.parametrize("home", ["/", "relative", "/home/../../etc/x"])
def test_a_home_that_is_no_place_for_one_is_left_alone(jail: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    user = pwd.struct_passwd(("lena", "x", 10001, 10001, "", home, "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwnam", lambda _: user)
    monkeypatch.setattr(make_home_program, "JAIL", jail)
    monkeypatch.setenv("PAM_TYPE", "open_session")
    before = sorted(jail.rglob("*"))

    assert make_home_program.main() == 0
    assert sorted(jail.rglob("*")) == before
