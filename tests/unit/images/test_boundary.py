"""What keeps users away from what is the pod's: owners, modes, and what is mounted for reading only."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from images.common.boundary import (
    forget_configuration,
    own_directory,
    protect_cgroups,
)
from images.common.command import Result
from images.common.process import CannotGoOnError
from tests.fakes.commands import FakeRunner


def test_what_took_the_place_of_a_directory_goes_and_nothing_that_it_leads_to(tmp_path: Path) -> None:
    """Code of the pod's that an earlier container ran may have put it there."""
    (tmp_path / "other").mkdir(mode=0o700)
    place = tmp_path / "place"
    place.symlink_to(tmp_path / "other")

    own_directory(place, os.getuid(), os.getgid())

    assert (place.is_dir(), place.is_symlink(), place.stat().st_mode & 0o7777) == (True, False, 0o755)
    assert (tmp_path / "other").stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize("link", [True, False])
def test_the_configuration_of_an_earlier_container_is_forgotten(tmp_path: Path, *, link: bool) -> None:
    """Root in the jail may have reached it then, and Slurm's commands load the plugins that it names."""
    cache, run = tmp_path / "conf-cache", tmp_path / "run"
    for directory in (cache, run):
        directory.mkdir()
    (cache / "slurm.conf").write_text("PluginDir=/jail/home/mallory\n")
    (cache / "scripts").mkdir()
    (cache / "scripts/prolog").touch()
    (cache / "elsewhere").symlink_to(tmp_path)
    if link:
        (run / "conf").symlink_to(cache)
    else:
        (run / "conf").mkdir()
        (run / "conf/slurm.conf").touch()

    forget_configuration(cache, run / "conf")

    assert not list(cache.iterdir())
    assert not list(run.rglob("slurm.conf"))
    assert tmp_path.exists()


def test_cgroups_are_shown_for_reading_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A runtime may mount them to be written, and root in the jail would take its job out of all limits."""
    runner = FakeRunner()
    protect_cgroups(tmp_path, runner)
    assert runner.commands == [], "there are none"
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path / "sys/fs/cgroup")
    protect_cgroups(tmp_path, runner)
    assert runner.commands == [f"mount -o remount,bind,ro {tmp_path}/sys/fs/cgroup"]
    with pytest.raises(CannotGoOnError, match="cannot be made read-only: denied"):
        protect_cgroups(tmp_path, FakeRunner({"mount": Result(code=32, stderr="denied")}))
