"""Named roots in the jail's volume: filled beside the others, once, and hidden from the first."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from images.backup import restic
from images.common import jail_roots
from images.common.jail_view import JailViewError
from images.common.process import RefusedError
from images.jail import populate as roots
from images.jail.populate import IN_PROGRESS, MARKER
from tests.programs.images.jail_roots.filled import fill, nothing_said
from tests.programs.images.mounts import run_apart


def test_a_root_is_filled_beside_the_first_one_which_stays_as_it_is(source: Path, volume: Path) -> None:
    assert fill(source, volume, "") == 0
    (volume / "usr/bin/tool").write_text("changed")

    assert fill(source, volume, "blue") == 0

    root = jail_roots.root_of(volume, "blue")
    assert (root / "usr/bin/tool").read_text() == "tool"
    assert (volume / "usr/bin/tool").read_text() == "changed"
    assert jail_roots.whole(volume) == ["", "blue"]
    assert (root / MARKER).is_file()
    assert root.stat().st_mode & 0o7777 == 0o755, "sshd insists"
    for path in (root.parent, root.parent.parent):
        assert path.stat().st_mode & 0o7777 == 0o700, path


def test_a_root_of_another_release_is_not_taken(source: Path, volume: Path) -> None:
    fill(source, volume, "blue")
    with pytest.raises(RefusedError, match=r"'blue' was filled with Slurm 24.11, and slurm.version is 26.05"):
        fill(source, volume, "blue", version="26.05-abc", release="26.05")


@pytest.mark.parametrize("is_noted", [True, False], ids=["filled", "filled-by-an-earlier-version"])
def test_root_in_the_first_root_cannot_have_it_filled_again(source: Path, volume: Path, *, is_noted: bool) -> None:
    fill(source, volume, "")
    if not is_noted:
        (jail_roots.directory_of(volume, "") / "filled.json").unlink()
        fill(source, volume, "")
    fill(source, volume, "blue")
    other = jail_roots.root_of(volume, "blue")
    (other / "etc/shadow").write_text("accounts of another root")
    (volume / MARKER).unlink()
    (volume / IN_PROGRESS).touch()
    (volume / "etc").rename(volume / "old")
    (volume / "etc").symlink_to(other / "etc")

    assert fill(source, volume, "") == 0

    assert (other / "etc/shadow").read_text() == "accounts of another root"
    assert (volume / MARKER).is_file()
    assert not (volume / IN_PROGRESS).exists()


@pytest.mark.parametrize("name", ["", "blue"])
def test_no_marker_is_written_or_removed_through_a_link(source: Path, volume: Path, name: str) -> None:
    for root in (name, "green"):
        fill(source, volume, root)
    state, there = jail_roots.root_of(volume, name) / ".slurmstack", jail_roots.root_of(volume, "green") / "etc"
    (there / "populating").touch()
    state.rename(state.with_name("old"))
    state.symlink_to(there)

    with pytest.raises(JailViewError, match="symbolic link"):
        fill(source, volume, name)

    assert (there / "populating").exists()
    assert not (there / "populated").exists()


def test_a_link_in_the_place_of_the_roots_is_not_followed(source: Path, volume: Path) -> None:
    fill(source, volume, "")
    roots = volume / jail_roots.ROOTS
    roots.rename(volume / "home/roots")
    roots.symlink_to("home/roots")

    with pytest.raises(JailViewError, match="symbolic link"):
        fill(source, volume, "blue")
    assert not (volume / "home/roots/blue").exists()


def test_backups_leave_the_same_out_of_each_root(monkeypatch: pytest.MonkeyPatch, volume: Path) -> None:
    monkeypatch.setenv("EXCLUDE", json.dumps(["/scratch"]))
    left = restic.in_jail(str(volume))
    assert f"--exclude={volume}/scratch" in left
    assert f"--exclude={volume}/.slurmstack-roots/*/root/scratch" in left
    assert f"--exclude={volume}/.slurmstack-roots/.homes" in left, "where homes are is a matter of this volume"


# Tools


def test_what_users_changed_is_shown_and_no_name_writes_on_a_terminal(tools: Path) -> None:
    root = jail_roots.root_of(tools, "blue")
    (root / "opt/\x1b[2Jx\n").touch()
    (root / os.fsdecode(b"opt/\xff")).touch()
    (root / "usr/local/bin/app/lib").mkdir(parents=True)
    (root / "usr/local/bin/app/run").touch()
    (root / "usr/bin/tool").write_text("changed")
    (root / "usr/bin/other").unlink()
    (root / "home/alice").mkdir()

    found = roots.diff(tools, "blue")

    assert found["added"] == {"/opt/\\udcff": 1, "/opt/\\x1b[2Jx\\n": 1, "/usr/local/bin/app": 3}
    assert (found["changed"], found["removed"]) == (["/usr/bin/tool"], ["/usr/bin/other"])
    assert found["counts"] == {"added": 5, "changed": 1, "removed": 1}


def test_roots_are_listed_with_their_size_without_what_all_share(tools: Path) -> None:
    (tools / "home/large").write_bytes(b"x" * 2**20)
    first, blue = roots.list_roots(tools, sizes=True)
    assert (first["name"], first["whole"], first["version"], first["more"]) == ("", True, "24.11-abc", False)
    assert (blue["name"], blue["release"], blue["carried_from"], blue["left_out"]) == ("blue", "24.11", None, 0)
    assert 0 < first["bytes"] < 2**20


def test_a_link_to_another_root_is_not_gone_into(tools: Path) -> None:
    root = jail_roots.root_of(tools, "blue")
    (root / "opt").rmdir()
    (root / "opt").symlink_to("../../..")
    assert roots.diff(tools, "blue")["changed"] == ["/opt"]
    roots.remove(tools, "blue", nothing_said)
    assert (tools / "usr/bin/tool").exists()


def test_a_removed_root_is_gone_and_its_numbers_are_kept(tools: Path) -> None:
    root = jail_roots.root_of(tools, "blue")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nbob:x:10007:10007::/home/bob:/bin/sh\nx:x:junk\n")
    (root / "opt/closed").mkdir(mode=0)

    roots.remove(tools, "blue", nothing_said)

    assert sorted(path.name for path in (tools / jail_roots.ROOTS).iterdir()) == [".first", ".numbers.json"]
    assert jail_roots.kept_numbers(tools, "users") == {10007: "bob"}
    assert (tools / "usr/bin/tool").exists()
    with pytest.raises(RefusedError, match="there is no root 'blue'"):
        roots.remove(tools, "blue", nothing_said)


def test_an_interrupted_removal_is_gone_on_with_and_the_root_is_no_longer_there_meanwhile(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (jail_roots.root_of(tools, "blue") / "etc/passwd").write_text("bob:x:10007:10007::/home/bob:/bin/sh\n")
    empty = roots._empty

    def interrupted(*given: Any) -> None:
        empty(*given)
        if next(calls):
            raise KeyboardInterrupt

    for calls in (iter([True]), iter([False, True])):  # noqa: B007  before the numbers are kept, and after that
        with monkeypatch.context() as patch:
            patch.setattr(roots, "_empty", interrupted)
            with pytest.raises(KeyboardInterrupt):
                roots.remove(tools, "blue", nothing_said)
        assert jail_roots.whole(tools) == [""]

    roots.remove(tools, "blue", nothing_said)
    assert [path.name for path in (tools / jail_roots.ROOTS).iterdir() if "removing" in path.name] == []
    assert jail_roots.kept_numbers(tools, "users") == {10007: "bob"}


def test_the_first_root_cannot_be_removed(tools: Path) -> None:
    for name in ("", ".first", "..", "."):
        with pytest.raises(RefusedError):
            roots.remove(tools, name, nothing_said)
    assert (tools / "usr/bin/tool").exists()


# Hidden from the first root by real mounts

REAL = """
import os, subprocess, sys
from pathlib import Path
from images.common import jail_roots
from images.common.jail_view import Bind, bind_into_jail
jail, work = Path(sys.argv[1]), Path(sys.argv[2])
jail_roots.NOTHING = work / "nothing"
bind_into_jail(jail, jail_roots.hidden(), print)
root = jail / jail_roots.ROOTS
print("seen:", os.listdir(root))
for tried in (lambda: root.rename(jail / "moved"), root.rmdir, (root / "x").touch, lambda: (root / "blue").stat()):
    try:
        tried()
        print("done")
    except OSError as error:
        print(error.strerror)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
def test_root_in_the_first_root_can_neither_see_move_nor_write_the_others(
    source: Path, volume: Path, tmp_path: Path
) -> None:
    fill(source, volume, "")
    fill(source, volume, "blue")
    done = run_apart(REAL, volume, tmp_path)
    assert done.stdout.splitlines()[1:] == [
        "seen: []", "Device or resource busy", "Device or resource busy", "Read-only file system",
        "No such file or directory",
    ], done.stdout + done.stderr  # fmt: skip
    assert jail_roots.whole(volume) == ["", "blue"]
