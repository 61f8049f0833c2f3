"""What keeps users away from what is the pod's: owners, modes, and what is mounted for reading only."""

from __future__ import annotations

import os
import stat
from functools import partial
from pathlib import Path

import pytest

from images.common.boundary import (
    forget_configuration,
    keep_only,
    own_directory,
    protect_cgroups,
    seal_root,
    settle_shared,
    without_set_up,
)
from images.common.command import Result
from images.common.gpu_jobs import GpuJobs
from images.common.process import CannotGoOnError
from images.worker import confine, gres, slurmd
from slurm.rights import IN_JAIL, WITHOUT_SET_UP
from tests.fakes.commands import FakeRunner
from tests.fakes.node_conf import document
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


def test_a_root_that_cannot_be_sealed_stops_the_start() -> None:
    with pytest.raises(CannotGoOnError, match="SYS_ADMIN"):
        seal_root(FakeRunner({"mount -o remount": Result(code=32, stderr="denied"), "mount": Result(code=0)}))


def test_the_first_process_of_a_container_reaps_and_keeps_nothing_of_the_set_up() -> None:
    rights = list(WITHOUT_SET_UP)
    assert without_set_up(["sshd", "-D"], 1) == [*rights, "/usr/bin/tini", "--", "sshd", "-D"]
    assert without_set_up(["sshd", "-D"], 7) == [*rights, "sshd", "-D"]


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_took_the_place_of_a_directory_goes_and_nothing_that_it_leads_to(tmp_path: Path, kind: str) -> None:
    """Code of the pod's that an earlier container ran may have put it there."""
    (tmp_path / "other").mkdir(mode=0o700)
    place = tmp_path / "place"
    if kind == "link":
        place.symlink_to(tmp_path / "other")
    else:
        place.touch()

    own_directory(place, os.getuid(), os.getgid())

    assert place.is_dir()
    assert not place.is_symlink()
    assert mode(tmp_path / "other") == 0o700


SYS_ADMIN = 21


@pytest.mark.parametrize("link", ["to the copy", "a directory", "absent"])
def test_the_configuration_of_an_earlier_container_is_forgotten(tmp_path: Path, link: str) -> None:
    """Root in the jail may have reached it then, and Slurm's commands load the plugins that it names."""
    cache, run = tmp_path / "conf-cache", tmp_path / "run"
    for directory in (cache, run):
        directory.mkdir()
    (cache / "slurm.conf").write_text("PluginDir=/jail/home/mallory\n")
    (cache / "scripts").mkdir()
    (cache / "scripts/prolog").touch()
    (cache / "elsewhere").symlink_to(tmp_path)
    if link == "to the copy":
        (run / "conf").symlink_to(cache)
    elif link == "a directory":
        (run / "conf").mkdir()
        (run / "conf/slurm.conf").touch()

    forget_configuration(cache, run / "conf")

    assert not list(cache.iterdir())
    assert not list(run.rglob("slurm.conf"))
    assert tmp_path.exists()


def test_the_plugins_leave_what_is_written_down() -> None:
    text = (ROOT / "images/common/native/capabilities.c").read_text()
    table = text[text.index("of_users =") : text.index(";", text.index("of_users ="))]
    assert {word.split(")")[0] for word in table.split("BIT(CAP_")[1:]} == set(IN_JAIL)


def test_what_is_to_be_kept_is_spelt_right() -> None:
    with pytest.raises(KeyError):
        keep_only("SYSADMIN")


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


def test_a_worker_runs_slurms_commands_only_when_it_has_given_that_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "node"
    jobs = GpuJobs(shown=tmp_path / "gpu-jobs", own=own / "gpu-jobs")
    monkeypatch.setattr(slurmd, "write_gres_conf", partial(gres.write_gres_conf, directory=own, jobs=jobs))
    for name in ("find", "write_slurm_conf"):
        monkeypatch.setattr(confine, name, partial(getattr(confine, name), directory=own))
    done: list[str] = []
    environment = {"CONTROLLER": "c:6817", "NODE_CONF": document("CPUs=1")}
    for name in ("own_directory", "forget_configuration", "settle_shared", "prepare_own_root", "give_up_set_up",
                 "raise_locked_memory", "wait_for_munge", "wait_for_controller", "become"):  # fmt: skip
        monkeypatch.setattr(slurmd, name, lambda *_, name=name, **__: done.append(name))
    for name in ("forget_elastic", "waits_for_place", "lift_own_drain"):
        monkeypatch.setattr(slurmd, name, lambda *_, **__: done.append("slurm"))
    monkeypatch.setattr(slurmd, "fitting_gres", lambda text, _: text)
    monkeypatch.setattr(os, "environ", environment)

    slurmd.main()

    assert done.index("forget_configuration") < done.index("give_up_set_up") < done.index("slurm")
    assert done[-1] == "become"
    written = {str(path.relative_to(own)) for path in own.rglob("*") if path.is_file()}
    assert written == {"cgroup.conf", "confinement", "gpu-jobs/gpus.json", "gres.conf", "slurm.conf"}
