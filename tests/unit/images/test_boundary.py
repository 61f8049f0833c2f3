"""What keeps users away from what is the pod's: owners, modes, and what is mounted for reading only."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from images.common.boundary import own_directory, seal_root, settle_shared, without_set_up
from images.common.command import Result
from images.common.jail_view import LOGIN_BINDS, WORKER_BINDS, Bind, bind_into_jail
from images.common.process import CannotGoOnError
from slurm.rights import IN_JAIL
from tests.fakes.commands import FakeMounts, FakeRunner
from tests.stacks import ROOT


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_kubernetes_opens_for_everybody_is_closed(tmp_path: Path) -> None:
    run, shared, words = tmp_path / "run", tmp_path / "shm", tmp_path / "termination-log"
    for directory in (run, shared):
        directory.mkdir()
        directory.chmod(0o777)
    words.touch()
    words.chmod(0o666)

    own_directory(run, os.getuid(), os.getgid())
    own_directory(tmp_path / "new", os.getuid(), os.getgid())
    settle_shared([shared], words)

    assert [mode(path) for path in (run, tmp_path / "new", shared, words)] == [0o755, 0o755, 0o1777, 0o600]


def test_what_is_not_the_users_is_shown_for_reading_only(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").touch()
    mounts = FakeMounts()

    bind_into_jail(tmp_path, [Bind(path="/etc/hosts", read_only=True)], print, Path("/dev/null"), bind_mount=mounts)

    assert mounts.made == [f"--bind -o ro /etc/hosts {tmp_path}/etc/hosts"]
    writable = {bind.path for bind in (*LOGIN_BINDS, *WORKER_BINDS) if not bind.read_only}
    assert writable == {"/proc", "/sys", "/dev", "/tmp", "/var/spool/slurmd"}


def test_a_root_that_cannot_be_sealed_stops_the_start() -> None:
    with pytest.raises(CannotGoOnError, match="SYS_ADMIN"):
        seal_root(FakeRunner({"mount -o remount": Result(code=32, stderr="denied"), "mount": Result(code=0)}))


def test_the_first_process_of_a_container_reaps_and_keeps_nothing_of_the_set_up() -> None:
    rights = ["/usr/bin/setpriv", "--inh-caps=-all", "--bounding-set=-sys_admin"]
    assert without_set_up(["sshd", "-D"], 1) == [*rights, "/usr/bin/tini", "--", "sshd", "-D"]
    assert without_set_up(["sshd", "-D"], 7) == [*rights, "sshd", "-D"]


def test_a_daemon_does_not_ignore_what_python_ignores() -> None:
    """Jobs inherit what slurmd ignores."""
    become = "from images.common.process import become; become(['grep', 'SigIgn', '/proc/self/status'], print)"
    done = subprocess.run([sys.executable, "-c", become], cwd=ROOT, capture_output=True, text=True, check=True)

    ignored = int(done.stdout.split()[-1], 16)
    assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


def test_the_plugins_leave_what_is_written_down() -> None:
    text = (ROOT / "images/common/native/capabilities.c").read_text()
    table = text[text.index("of_users =") : text.index(";", text.index("of_users ="))]
    assert {word.split(")")[0] for word in table.split("BIT(CAP_")[1:]} == set(IN_JAIL)
