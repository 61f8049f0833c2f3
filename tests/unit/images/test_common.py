"""What the programs of all images share."""

from __future__ import annotations

import errno
import io
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from images.common import terms
from images.common.command import run
from images.common.files import swap_symlink, write_atomically
from images.common.install import USERS_FROM, take_users
from images.common.jail_view import Bind, JailViewError, bind_into_jail
from images.common.log import Log, open_pod_log
from images.common.mountinfo import WrongFilesystemError
from images.common.munged import prepare
from images.common.process import CannotGoOnError, program
from images.common.readiness import accepts_connections, can_connect, wait_for_jail
from images.common.steps import SLURMSTEPD, local_steps
from images.common.wait import wait_for
from images.controller import config_agent
from images.elastic import program as elastic
from images.login.sshd import check_chroot
from tests.fakes.commands import FakeClock, FakeMounts
from tests.unit.images.health.places import add_process

NOTHING_MOUNTED = Path("/dev/null")


def test_each_line_names_its_program() -> None:
    stream = io.StringIO()

    Log("users", stream)("one\ntwo")

    assert stream.getvalue() == "users: one\nusers: two\n"


def test_names_that_would_write_on_a_terminal_do_not_nor_do_those_that_are_no_text() -> None:
    stream = io.StringIO()
    Log("users", stream)("a\x1b[2Jb \udc80 \t\u00e9")
    assert stream.getvalue() == "users: a\\x1b[2Jb \\udc80 \t\u00e9\n"


def test_what_keeps_a_program_from_its_work_is_an_error_as_slurm_writes_it() -> None:
    stream = io.StringIO()

    with pytest.raises(SystemExit), program("users", stream):
        raise CannotGoOnError("no jail\nask Bob")

    assert stream.getvalue() == "users: error: no jail\nusers: error: ask Bob\n"


def test_a_hook_writes_to_the_pods_log(tmp_path: Path) -> None:
    with open_pod_log(tmp_path / "stdout") as stream:
        stream.write("x")

    assert (tmp_path / "stdout").read_text() == "x"
    assert open_pod_log(tmp_path / "no/such") is sys.stderr


def test_waiting_is_told_at_once_and_then_every_ten_seconds() -> None:
    clock, log = FakeClock(), list[str]()

    wait_for("godot", lambda: clock.time >= 35, log.append, clock=clock)

    assert log[0] == "waiting for godot"
    assert len(log) == 4


def test_what_is_already_there_is_not_waited_for() -> None:
    log = list[str]()

    wait_for("x", lambda: True, log.append, clock=FakeClock())

    assert log == []


def test_a_command_for_which_there_is_no_process_just_now_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "run", full)
    assert run(["sinfo"]).message == "sinfo: Resource temporarily unavailable"


@pytest.mark.parametrize("main", [elastic.main, config_agent.main])
def test_programs_whose_threads_work_alone_end_with_them(
    monkeypatch: pytest.MonkeyPatch, main: Callable[[], object]
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    before = threading.excepthook
    for name in ("KUBERNETES_SERVICE_HOST", "NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(terms, "return_to_one_of_pod", lambda _: sys.exit(1))
    with pytest.raises(SystemExit):  # and for elastic there is no Kubernetes
        main()
    assert threading.excepthook is not before


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")

    write_atomically(path, "new", mode=0o400)

    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_link_is_swapped_even_where_one_is(tmp_path: Path) -> None:
    swap_symlink(tmp_path / "current", "a")
    swap_symlink(tmp_path / "current", "b")

    assert (tmp_path / "current").readlink() == Path("b")


def test_munges_key_is_only_for_munge(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"k" * 128)
    status = tmp_path.stat()

    prepare(secret, tmp_path / "root", status.st_uid, status.st_gid, print)

    key = tmp_path / "root/run/munged/munge.key"
    assert key.read_bytes() == b"k" * 128
    assert stat.S_IMODE(key.stat().st_mode) == 0o400
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "root/run/munge").stat().st_mode) == 0o755


def test_a_socket_that_a_dead_munged_left_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "munge.socket.2"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    assert path.exists()

    assert not accepts_connections(path)


def test_a_munged_that_listens_is_ready(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()

        assert accepts_connections(tmp_path / "s")


def test_a_jail_that_the_machine_has_not_mounted_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXPECT_FILESYSTEM", "virtiofs")

    with pytest.raises(WrongFilesystemError, match="instead of virtiofs"):
        wait_for_jail(tmp_path, print)


def test_a_controller_that_listens_is_there() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        assert can_connect(f"127.0.0.1:{server.getsockname()[1]}")
    assert not can_connect("127.0.0.1:9")


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    (tmp_path / "jail/dev").mkdir(parents=True)
    return tmp_path / "jail"


def test_what_is_bound_already_is_not_bound_again(jail: Path) -> None:
    mounts, mountinfo = FakeMounts(), jail.parent / "mountinfo"
    mountinfo.write_text(f"500 400 0:40 / {jail}/dev rw - devtmpfs dev rw\n")

    bind_into_jail(jail, [Bind(path="/dev", recursive=True)], print, mountinfo, bind_mount=mounts)

    assert mounts.made == []


def test_a_bind_shows_the_pods_own_thing_in_the_jail(jail: Path) -> None:
    mounts = FakeMounts()

    bind_into_jail(jail, [Bind(path="/dev", recursive=True)], print, NOTHING_MOUNTED, bind_mount=mounts)

    assert mounts.made == [f"--rbind /dev {jail}/dev"]


def test_a_foreign_jail_without_targets_is_explained(jail: Path) -> None:
    with pytest.raises(JailViewError, match="the jail has no directory /proc"):
        bind_into_jail(jail, [Bind(path="/proc")], print, NOTHING_MOUNTED, bind_mount=FakeMounts())


def test_a_missing_permission_is_explained(jail: Path) -> None:
    mounts = FakeMounts(PermissionError(errno.EPERM, "Operation not permitted"))

    with pytest.raises(JailViewError, match=r"Operation not permitted.*CAP_SYS_ADMIN"):
        bind_into_jail(jail, [Bind(path="/dev")], print, NOTHING_MOUNTED, bind_mount=mounts)


def test_a_jail_that_others_may_write_is_refused_before_sshd_refuses_each_login(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    with pytest.raises(CannotGoOnError, match="mode 0777"):
        check_chroot(tmp_path, owner=tmp_path.stat().st_uid)


def test_only_slurmstepd_counts_as_a_step_and_no_name_does(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 1, comm="slurmd", uid=0)
    add_process(proc, 22, comm="slurmstepd", uid=0)
    add_process(proc, 23, comm="renamed", uid=0, runs=SLURMSTEPD)
    add_process(proc, 24, comm="slurmstepd", title="slurmstepd: [5.0]", uid=1001)
    add_process(proc, 25, comm="slurmstepd", title="slurmstepd: [5.0]", uid=0, runs="tmp/slurmstepd")
    add_process(proc, 26, comm="slurmstepd", title="slurmstepd: [5.0]", uid=1001, runs=SLURMSTEPD)

    assert local_steps(proc) == 2


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nsswitch.conf").write_text("passwd:         files\ngroup:  files sss\nhosts:  files dns\n")
    return tmp_path


@pytest.mark.parametrize("role", USERS_FROM)
def test_pods_find_users_where_those_of_their_role_are(root: Path, role: str) -> None:
    take_users(role, root)

    assert (root / "var/lib/extrausers/passwd").readlink() == Path(USERS_FROM[role]) / "passwd"
    text = (root / "etc/nsswitch.conf").read_text()
    assert text == "passwd:         files extrausers sss\ngroup:          files extrausers sss\nhosts:  files dns\n"


def test_only_where_users_log_in_or_run_jobs_it_is_seen_who_is_locked(root: Path) -> None:
    take_users("worker", root)
    assert (root / "var/lib/extrausers/shadow").readlink() == Path("/jail/etc/shadow")


def test_the_jail_has_users_in_its_own_files_and_from_sssd(root: Path) -> None:
    take_users("jail", root)

    assert not (root / "var/lib/extrausers").exists()
    assert "group:          files sss\n" in (root / "etc/nsswitch.conf").read_text()
