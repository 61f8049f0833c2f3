"""Who may log in and what sshd is told of it; homes that are made at a first login."""

from __future__ import annotations

import os
import pwd
import resource
import shutil
from pathlib import Path

import pytest

from images.common import homes
from images.common.cgroups import CannotConfineError, Subtree
from images.common.command import Runner, run
from images.common.homes import make_home
from images.common.jail_view import JailViewError, sssd_binds
from images.login import access, shares
from images.login import make_home as make_home_program
from images.login.access import OUR_MODULE, limits_file, pam_service, parse_limits, sshd_options
from images.login.leave import QUIET_SECONDS, wait_for_sessions
from images.login.sessions import all_sessions, sessions_of
from tests.fakes.commands import FakeClock

LIMITS = {"nproc": 200, "as": 4194304, "maxlogins": 3}


def test_limits_are_read_as_the_stack_writes_them() -> None:
    assert parse_limits("nproc=200 as=4194304 maxlogins=3") == LIMITS
    assert parse_limits("") == {}


@pytest.mark.parametrize("text", ["nproc", "nproc=many", "stack=1"])
def test_what_is_no_limit_stops_the_start(text: str) -> None:
    with pytest.raises(ValueError, match=r"limit|int"):
        parse_limits(text)


def test_everybody_but_root_gets_the_limits_and_logins_are_ours_to_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    text = limits_file(LIMITS, lambda _: None)

    assert text.splitlines()[1:] == ["* soft data unlimited", "* - nproc 200", "* - as 4194304"]


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


def test_keys_come_from_sssd_only_where_it_is() -> None:
    assert sshd_options(sssd=False) == []
    assert "AuthorizedKeysCommand=/usr/bin/sss_ssh_authorizedkeys" in sshd_options(sssd=True)


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


def test_pam_does_what_is_asked_for_and_no_more() -> None:
    assert "pam_sss" not in pam_service(LIMITS, sssd=False)
    assert "admit 3" in pam_service(LIMITS, sssd=False)
    assert "account required pam_sss.so\n" in pam_service({}, sssd=True)


def test_what_pam_reads_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "LIMITS_FILE", tmp_path / "run/limits.conf")
    monkeypatch.setattr(access, "PAM_SERVICE", tmp_path / "sshd")

    access.set_up_access({"maxlogins": 3}, print, sssd=False)
    assert "admit 3" in (tmp_path / "sshd").read_text()


GIB = 2**30


@pytest.mark.parametrize(
    ("limits", "own", "for_all", "lines"),
    [
        ({}, 16 * GIB, 14 * GIB, [f"memory.max {7 * GIB}"]),
        ({}, None, None, []),
        ({"total_memory": GIB, "total_cpus": 1500}, 16 * GIB, 14 * GIB, [f"memory.max {GIB}", "cpu.max 150000 100000"]),
        ({"total_cpus": 100, "nproc": 40}, None, None, ["cpu.max 10000 100000"]),
    ],
)
def test_each_user_has_a_share(
    tmp_path: Path, limits: dict[str, int], own: int | None, for_all: int | None, lines: list[str]
) -> None:
    taken: list[tuple[object, ...]] = []

    def take(daemons: str, divided: str, memory: int | None, _: Runner) -> Subtree:
        taken.append((daemons, divided, memory))
        return Subtree(how="remounted", swap=True)

    def make(name: str, memory: int | None) -> None:
        taken.append((name, memory))

    shares.set_up(limits, run, print, take=take, make=make, limit=lambda: own, file=tmp_path / "run/shares")

    assert taken == [("sshd", "users", for_all), ("connections", None if own is None else 3 * GIB // 2)]
    assert (tmp_path / "run/shares").read_text().splitlines() == lines


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

    shares.set_up({}, run, print, take=take, make=make, limit=lambda: own * 2**20, file=tmp_path / "shares")

    assert taken == [("users", users * 2**20), ("connections", connections * 2**20)]


def test_without_cgroups_there_are_no_shares_and_the_log_says_why(tmp_path: Path) -> None:
    def cannot(*_: object) -> Subtree:
        raise CannotConfineError("the reason")

    file, said = tmp_path / "shares", list[str]()
    file.write_text("of the container's start before")
    shares.set_up({"total_cpus": 100}, run, said.append, take=cannot, limit=lambda: None, file=file)

    assert not file.exists()
    assert said == ["users share this login node's CPU and memory as they come: the reason"]


def test_shares_are_not_pam_s_business() -> None:
    limits = parse_limits("total_memory=1073741824 total_cpus=500")

    assert limits_file(limits, print) == limits_file({}, print)


def test_a_session_has_the_room_that_its_connection_had_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the limits are: PAM opens no session without."""
    for limits in ({}, LIMITS, {"maxlogins": 3}):
        assert "session required pam_limits.so" in pam_service(limits, sssd=False)
    for own, line in ((resource.RLIM_INFINITY, "unlimited"), (2**30, str(2**20))):
        monkeypatch.setattr(resource, "getrlimit", lambda _, own=own: (1, own))
        assert f"* soft data {line}\n" in limits_file({}, print)


def process(proc: Path, pid: int, name: str, uid: int, parent: int, *, capabilities: int = 0xA00405FB) -> None:
    (proc / str(pid)).mkdir()
    uids, permitted = "\t".join(4 * [str(uid)]), f"{0 if uid else capabilities:016x}"
    text = f"Name:\t{name}\nUid:\t{uids}\nPPid:\t{parent}\nCapPrm:\t{permitted}\n"
    (proc / str(pid) / "status").write_text(text)


def test_a_session_is_a_connection_of_that_user(tmp_path: Path) -> None:
    process(tmp_path, 1, "sshd", 0, 0)
    process(tmp_path, 10, "sshd-session", 0, 1)
    process(tmp_path, 11, "sshd-session", 10001, 10)
    process(tmp_path, 12, "sshd-session", 10001, 11)  # sftp of the same connection
    process(tmp_path, 13, "bash", 10001, 11)
    process(tmp_path, 20, "sshd-session", 10002, 19)
    (tmp_path / "30").mkdir()  # has just ended

    assert sessions_of(10001, tmp_path) == 1
    assert sessions_of(10002, tmp_path) == 1
    assert sessions_of(10003, tmp_path) == 0


def test_all_sessions_are_those_that_sshd_itself_serves(tmp_path: Path) -> None:
    process(tmp_path, 1, "tini", 0, 0)
    process(tmp_path, 7, "sshd", 0, 1)
    process(tmp_path, 10, "sshd-session", 0, 7)
    process(tmp_path, 11, "sshd-session", 10001, 10)
    process(tmp_path, 12, "sshd-session", 10001, 11)  # sftp of the same connection
    process(tmp_path, 20, "sshd-session", 0, 7)
    process(tmp_path, 21, "sshd-auth", 101, 20)  # has not shown its key yet
    process(tmp_path, 30, "sshd-session", 0, 7)
    process(tmp_path, 31, "sshd-session", 10002, 30)
    assert all_sessions(tmp_path) == 2
    process(tmp_path, 40, "sshd-session", 10002, 1)  # called so by a user, and left by its parent
    process(tmp_path, 41, "sshd-session", 10002, 40)
    process(tmp_path, 50, "sshd", 0, 1, capabilities=0xA00000FB)  # called so by root in the jail
    process(tmp_path, 51, "sshd-session", 10002, 50)
    assert all_sessions(tmp_path) == 2


def test_a_leaving_login_node_waits_until_nobody_has_been_there_for_a_moment() -> None:
    clock, log = FakeClock(), list[str]()

    def count() -> int:
        return int(clock.time < 7200 or 7203 <= clock.time < 9000) * 2

    wait_for_sessions(log.append, count, clock)
    assert 9000 < clock.time - QUIET_SECONDS + 2 < 9003
    assert log[0] == "waiting for 2 sessions to end"


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    (tmp_path / "etc/skel").mkdir(parents=True)
    (tmp_path / "etc/skel/.bashrc").write_text("# skeleton\n")
    return tmp_path


def test_a_home_is_made_once_and_only_its_owner_may_look(jail: Path) -> None:
    assert make_home(jail, "/home/team/lena", os.getuid(), os.getgid())
    (jail / "home/team/lena/.bashrc").write_text("mine\n")

    assert not make_home(jail, "/home/team/lena", os.getuid(), os.getgid())

    assert (jail / "home/team/lena/.bashrc").read_text() == "mine\n"
    assert (jail / "home/team/lena").stat().st_mode & 0o777 == 0o700
    assert [path.name for path in (jail / "home/team").iterdir()] == ["lena"]


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


@pytest.mark.parametrize("link", ["etc", "etc/skel"])
def test_no_link_of_root_in_the_jail_leads_to_another_skeleton(
    jail: Path, tmp_path_factory: pytest.TempPathFactory, link: str
) -> None:
    secrets = tmp_path_factory.mktemp("secrets")
    (secrets / "skel").mkdir()
    for place in (secrets, secrets / "skel"):
        (place / "ssh_host_ed25519_key").write_text("the key of the login nodes")
    shutil.rmtree(jail / link)
    (jail / link).symlink_to(secrets)

    assert make_home(jail, "/home/lena", os.getuid(), os.getgid())

    assert list((jail / "home/lena").iterdir()) == []


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


def test_a_skeleton_fills_no_volume(jail: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skeleton = jail / "etc/skel"
    os.truncate(skeleton / ".bashrc", 2**40)
    way = skeleton
    for _ in range(homes.DEEPEST + 2):
        way /= "deep"
        way.mkdir()
    for number in range(20):
        (skeleton / f"file{number}").touch()

    assert make_home(jail, "/home/lena", os.getuid(), os.getgid())
    monkeypatch.setattr(homes, "MOST_FILES", 30)
    assert make_home(jail, "/home/adam", os.getuid(), os.getgid())

    assert (jail / "home/lena/file19").exists()
    assert not (jail / "home/lena/.bashrc").exists()
    assert len(list((jail / "home/lena").rglob("deep"))) == homes.DEEPEST
    assert len(list((jail / "home/adam").rglob("*"))) <= 30


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


def test_the_jail_sees_the_pod_s_sssd_only_where_there_is_one(jail: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.delenv("SSSD_PIPES", raising=False)
    assert sssd_binds(jail, said.append) == ()

    monkeypatch.setenv("SSSD_PIPES", "/var/lib/sss/pipes")
    (bind,) = sssd_binds(jail, said.append)
    assert (bind.path, bind.make) == ("/var/lib/sss/pipes", True)
    assert "the jail lacks libnss-sss" in said[0]


def test_a_jail_with_the_library_is_not_complained_about(jail: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSSD_PIPES", "/var/lib/sss/pipes")
    (jail / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    (jail / "usr/lib/x86_64-linux-gnu/libnss_sss.so.2").touch()
    said: list[str] = []

    sssd_binds(jail, said.append)

    assert said == []
