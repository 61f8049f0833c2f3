"""What is bound into the jail, homes, limits of logins, and what keeps users away from the pod's own."""

from __future__ import annotations

import json
import os
import pwd
import resource
import shutil
from pathlib import Path
from typing import IO

import pytest

from images.common.boundary import (
    forget_configuration,
    own_directory,
)
from images.common.jail_view import (
    Bind,
    JailViewError,
    bind_into_jail,
    make_home,
    user_volumes,
)
from images.common.mountinfo import WrongFilesystemError, expect_filesystem
from images.login import make_home as make_home_program
from images.login.sshd import limits_file
from tests.fakes.commands import FakeMounts

POD = """\
500 400 0:40 / / rw,relatime master:1 - overlay overlay rw
501 500 0:41 / /proc rw - proc proc rw
502 500 0:50 /slurm/jail /jail rw,relatime - virtiofs jail rw
503 502 0:41 / /jail/proc rw - proc proc rw
504 500 8:1 /mnt/slurmstack/mount-data /mounts/data rw shared:7 master:2 - ext4 /dev/vda1 rw
505 500 8:1 /x /mnt/a\\040b rw - ext4 /dev/vda1 rw
"""
ME = os.getuid(), os.getgid()


@pytest.fixture
def mountinfo(tmp_path: Path) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text(POD)
    return path


def test_a_volume_that_the_machine_did_not_mount_is_refused(mountinfo: Path) -> None:
    for directory in ("/jail", "/jail/home/alice"):
        expect_filesystem(Path(directory), "virtiofs", mountinfo)
    for directory, found in (("/mounts/data", "ext4"), ("/jailed", "overlay"), ("/jail/proc/1", "proc")):
        with pytest.raises(WrongFilesystemError, match=f"{directory} is on {found} instead of virtiofs"):
            expect_filesystem(Path(directory), "virtiofs", mountinfo)
    mountinfo.write_text(POD + "506 502 8:1 / /jail rw - ext4 /dev/vda1 rw\n")
    with pytest.raises(WrongFilesystemError, match="on ext4"):  # the last of several at one place counts
        expect_filesystem(Path("/jail"), "virtiofs", mountinfo)


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    (tmp_path / "jail/etc").mkdir(parents=True)
    (tmp_path / "jail/etc/hosts").touch()
    return tmp_path / "jail"


def bound(jail: Path, *binds: Bind, mounted: str = "", mounts: FakeMounts | None = None) -> list[str]:
    """What is mounted for these, in a pod where `mounted` is mounted already."""
    mountinfo, mounts = jail.parent / "mountinfo", mounts or FakeMounts()
    mountinfo.write_text(f"500 400 0:40 / {mounted or '/'} rw - ext4 /dev/vda1 rw\n")
    bind_into_jail(jail, binds, print, mountinfo, bind_mount=mounts)
    return mounts.made


def test_a_second_call_binds_nothing_again(jail: Path) -> None:
    dev = Bind(path="/dev", recursive=True, make=True)
    assert bound(jail, dev) == [f"--rbind /dev {jail}/dev"]
    assert bound(jail, dev, mounted=f"{jail}/dev") == []


def volumes(*entries: dict[str, str]) -> list[Bind]:
    """As the pod's environment has them."""
    return user_volumes(json.dumps(entries))


def test_volumes_of_users_are_bound_with_what_is_mounted_in_them_the_outer_one_first(jail: Path) -> None:
    source = jail.parent / "mounts/data"
    source.mkdir(parents=True)
    inner, outer = {"source": str(source), "path": "/data/inner"}, {"source": str(source), "path": "/data"}

    assert bound(jail, *volumes(inner, outer)) == [
        f"--rbind {source} {jail}/data",
        f"--rbind {source} {jail}/data/inner",
    ]
    assert (jail / "data/inner").stat().st_mode & 0o777 == 0o755
    assert user_volumes("") == []


def test_a_volume_on_the_machines_own_disk_is_not_shown(jail: Path) -> None:
    mounts = FakeMounts()
    with pytest.raises(WrongFilesystemError, match="ext4 instead of virtiofs"):
        bound(jail, *volumes({"source": "/etc", "path": "/data", "filesystem": "virtiofs"}), mounts=mounts)
    assert mounts.made == []


@pytest.mark.parametrize("link", ["run", "run/munge", "etc", "etc/hosts"])
def test_a_link_in_the_jail_never_turns_a_mount_on_the_pod(tmp_path: Path, link: str) -> None:
    """Root in the jail may make one anywhere, and the pod's own programs would be covered at its next start."""
    pod, jail = tmp_path / "pod", tmp_path / "jail"
    for root in (pod, jail):
        (root / "run/munge").mkdir(parents=True)
        (root / "etc").mkdir()
        (root / "etc/hosts").touch()
    (jail / link).rename(tmp_path / "away")
    (jail / link).symlink_to(pod / link)
    mounts = FakeMounts()
    binds = [Bind(path=f"/{place}", source=str(pod / place)) for place in ("run/munge", "etc/hosts") if link in place]

    with pytest.raises(JailViewError, match=f"/{link} is a symbolic link"):
        bound(jail, *binds, mounts=mounts)

    assert mounts.made == []


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
    assert make_home(jail, "/home/lena", *ME)
    assert {"settings", "app", ".config", "home"} <= set(given)
    assert (jail / "home/lena/.config/app/settings").exists()


def test_a_directory_that_becomes_a_link_meanwhile_leads_out_of_no_home(
    jail: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is root in the jail writes nowhere as root outside of it."""
    outside, content = tmp_path / "outside", shutil.copyfileobj
    outside.mkdir()
    (jail / "etc/skel/dir").mkdir(parents=True)
    for name in ("one", "two"):
        (jail / "etc/skel/dir" / name).touch()

    def swapped(old: IO[bytes], new: IO[bytes]) -> None:
        (place,) = (jail / "home").rglob("dir")
        if not place.is_symlink():
            place.rename(place.with_name("away"))
            place.symlink_to(outside)
        content(old, new)

    monkeypatch.setattr(shutil, "copyfileobj", swapped)
    assert make_home(jail, "/home/lena", *ME)
    assert list(outside.iterdir()) == []
    assert {path.name for path in (jail / "home/lena/away").iterdir()} == {"one", "two"}


def test_a_home_is_never_made_through_a_symbolic_link(jail: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (jail / "home").symlink_to(outside)

    with pytest.raises(JailViewError, match="/home is a symbolic link"):
        make_home(jail, "/home/lena", *ME)

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


def test_a_limit_above_the_pod_s_own_becomes_that_as_no_login_would_work_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1, 600))
    said: list[str] = []

    text = limits_file({"nofile": 601, "cpu": 11, "nproc": 600}, said.append)

    assert text.splitlines()[1:] == ["* - nofile 600", "* - cpu 10", "* - nproc 600"]
    assert said == [
        "login.user_limits: nofile is 600 instead of 601: more is not allowed to this pod",
        "login.user_limits: cpu is 10 instead of 11: more is not allowed to this pod",
    ]


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
