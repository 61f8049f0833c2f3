"""What the programs of all images share."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

from images.common.files import install_secret, swap_symlink, write_atomically
from images.common.log import Log
from images.common.steps import SLURMSTEPD, local_steps
from images.common.wait import wait_for
from tests.fakes.commands import FakeClock
from tests.unit.images.health.places import add_process


def test_names_that_would_write_on_a_terminal_do_not_nor_do_those_that_are_no_text() -> None:
    stream = io.StringIO()
    Log("users", stream)("a\x1b[2Jb \udc80 \t\u00e9")
    assert stream.getvalue() == "users: a\\x1b[2Jb \\udc80 \t\u00e9\n"


def test_waiting_is_told_at_once_and_then_every_ten_seconds() -> None:
    clock, log = FakeClock(), list[str]()
    wait_for("what is there", lambda: True, log.append, clock=clock)
    wait_for("godot", lambda: clock.time >= 35, log.append, clock=clock)
    assert log[0] == "waiting for godot"
    assert len(log) == 4


def test_a_reader_never_sees_half_a_file_and_a_link_is_swapped_even_where_one_is(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "current"
    for content, mode in (("old", 0o644), ("new", 0o400)):
        write_atomically(path, content, mode=mode)
        swap_symlink(link, content)

    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o400
    assert link.readlink() == Path("new")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["current", "file"]


def test_only_slurmstepd_counts_as_a_step_and_no_name_does(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    add_process(proc, 1, comm="slurmd", uid=0)
    add_process(proc, 22, comm="slurmstepd", uid=0)
    add_process(proc, 23, comm="renamed", uid=0, runs=SLURMSTEPD)
    add_process(proc, 24, comm="slurmstepd", title="slurmstepd: [5.0]", uid=1001)
    add_process(proc, 25, comm="slurmstepd", title="slurmstepd: [5.0]", uid=0, runs="tmp/slurmstepd")
    add_process(proc, 26, comm="slurmstepd", title="slurmstepd: [5.0]", uid=1001, runs=SLURMSTEPD)

    assert local_steps(proc) == 2


def test_only_the_daemon_can_read_a_key_and_a_rotated_one_replaces_it(tmp_path: Path) -> None:
    secret, target = tmp_path / "secret", tmp_path / "run/keys/jwt_hs256.key"
    for key in (b"\x00binary\n", b"new"):
        secret.write_bytes(key)
        install_secret("the key", secret, target, print, owner=(os.getuid(), os.getgid()))

        assert target.read_bytes() == key
    assert stat.S_IMODE(target.stat().st_mode) == 0o400
    assert stat.S_IMODE(target.parent.stat().st_mode) == 0o755
