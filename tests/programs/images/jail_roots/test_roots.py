"""Named roots in the jail's volume: filled beside the others, once; hidden from the first."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from images.backup import restic
from images.common import jail_roots
from images.common.jail_view import JailViewError
from images.common.process import RefusedError
from images.jail.populate import IN_PROGRESS, MARKER
from tests.programs.images.jail_roots.roots import fill


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
    monkeypatch.setattr(restic, "JAIL", volume)
    left = restic.in_jail(json.dumps(["/scratch"]))
    assert f"--exclude={volume}/scratch" in left
    assert f"--exclude={volume}/.slurmstack-roots/*/root/scratch" in left
    assert f"--exclude={volume}/.slurmstack-roots/.homes" in left, "where homes are is a matter of this volume"


@pytest.mark.parametrize("text", ["[" * 60_000, '{"version": "24.11-a\\u001b[2J", "left_out": 1e999}', "fifo"])
def test_whatever_is_in_a_marker_a_root_is_listed(volume: Path, text: str) -> None:
    (volume / ".slurmstack").mkdir()
    os.mkfifo(volume / MARKER) if text == "fifo" else (volume / MARKER).write_text(text)

    known = jail_roots.filled(volume, "")

    assert known is not None
    assert known.version.isprintable()
    assert known.left_out == 0
