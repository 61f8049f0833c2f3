"""Links in a jail that is read or written by path, with real mounts; and restic is let take its lock away."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from images.backup import restic, restore
from images.common.command import Result
from images.common.process import CannotGoOnError
from tests.programs.images.mounts import run_apart


def test_a_jail_whose_links_lead_somewhere_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restic, "JAIL", tmp_path)
    with pytest.raises(CannotGoOnError, match="links in the jail cannot be made harmless"):
        restic.enter_jail()


NO_LINKS = """
import os, subprocess, sys
from pathlib import Path
from images.backup import restic

top = Path(sys.argv[1])
for name in ("jail", "shared/home"):
    subprocess.run(["mount", "--bind", top / name, top / name], check=True)
os.environ["HOMES"] = str(top / "shared/home")
restic.JAIL = top / "jail"
restic.enter_jail()
for name in ("own", "inside/data", "outside/data", "away/data", "home/alice/file", "home/link/file"):
    try:
        print(name, (top / "jail" / name).read_text())
    except OSError as error:
        print(name, error.strerror)
print(os.readlink(top / "jail/outside"))
os.symlink("anywhere", top / "jail/new")
(top / "jail/home/alice/new").write_text("restored")
print(subprocess.run(["mount", "-t", "tmpfs", "tmpfs", top], capture_output=True).returncode != 0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_no_link_leads_anywhere_in_the_jail_and_in_homes_and_the_right_to_mount_is_given_up(tmp_path: Path) -> None:
    for name in ("jail/own", "jail/bob/data", "data", "shared/home/alice/file", "jail/home/bob/hidden"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"of {name}")
    (tmp_path / "jail/inside").symlink_to("bob")
    (tmp_path / "jail/outside").symlink_to(tmp_path)
    (tmp_path / "jail/away").symlink_to("../")
    (tmp_path / "shared/home/link").symlink_to("alice")
    done = run_apart(NO_LINKS, tmp_path)
    closed = "Too many levels of symbolic links"
    assert done.stdout.splitlines() == [
        "own of jail/own", f"inside/data {closed}", f"outside/data {closed}", f"away/data {closed}",
        "home/alice/file of shared/home/alice/file", f"home/link/file {closed}", str(tmp_path), "True",
    ], done.stderr  # fmt: skip
    assert (tmp_path / "jail/new").is_symlink()
    assert (tmp_path / "shared/home/alice/new").exists(), "homes are a part of the jail, wherever they lie"
    assert [path.name for path in (tmp_path / "jail/home").iterdir()] == ["bob"]


def test_why_mariadb_has_not_loaded_a_dump_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "CACHE", tmp_path)
    monkeypatch.setattr(restic, "call", Mock(return_value=Result(code=0)))
    load = ["sh", "-c", "cat >&2; echo 'ERROR 1062 (23000) at line 5' >&2; exit 3"]
    with pytest.raises(CannotGoOnError) as caught:
        restore.load(Mock(load=load), "1", "slurm")
    ended = "mariadb ended with 3: ERROR 1062 (23000) at line 5"
    assert str(caught.value) == f"the database was not restored as a whole; restore it again: {ended}"


def test_a_program_that_is_to_end_lets_restic_take_its_lock_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed with PID 1 of its container it would leave it, and nobody could use the repository for half an hour."""
    program, begun, ended = (tmp_path / name for name in ("restic", "begun", "ended"))
    program.write_text(f"#!/bin/sh\ntrap 'touch {ended}; exit 1' TERM\ntouch {begun}\nwhile :; do sleep 0.05; done\n")
    program.chmod(0o755)
    monkeypatch.setattr(restic, "RESTIC", str(program))

    def told_to_end(*_: object, **__: object) -> None:
        while not begun.exists():
            time.sleep(0.01)
        raise SystemExit(143)

    monkeypatch.setattr(subprocess.Popen, "communicate", told_to_end)
    with pytest.raises(SystemExit):
        restic.call("check")
    assert ended.exists()
