"""Shared volumes besides the jail, bound to the users' paths in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from images.common.jail_view import Bind, JailViewError, bind_into_jail, make_directory, user_volumes
from images.common.mountinfo import WrongFilesystemError
from tests.fakes.commands import FakeMounts


@pytest.fixture
def jail(tmp_path: Path) -> Path:
    (tmp_path / "jail").mkdir()
    return tmp_path / "jail"


@pytest.fixture
def mountinfo(tmp_path: Path) -> Path:
    path = tmp_path / "mountinfo"
    path.write_text("500 400 0:40 / / rw - ext4 /dev/vda1 rw\n")
    return path


def volumes(*entries: dict[str, str]) -> list[Bind]:
    """As the pod's environment has them."""
    return user_volumes(json.dumps(entries))


def volume(tmp_path: Path, name: str) -> str:
    (tmp_path / "mounts" / name).mkdir(parents=True)
    return str(tmp_path / "mounts" / name)


def test_a_volume_is_bound_with_what_is_mounted_in_it(tmp_path: Path, jail: Path, mountinfo: Path) -> None:
    mounts, source = FakeMounts(), volume(tmp_path, "data")

    bind_into_jail(jail, volumes({"source": source, "path": "/data/set"}), print, mountinfo, bind_mount=mounts)

    assert mounts.made == [f"--rbind {source} {jail}/data/set"]
    assert (jail / "data/set").stat().st_mode & 0o777 == 0o755


def test_what_contains_another_is_bound_first() -> None:
    entries = [{"source": "/mounts/b", "path": "/data/inner"}, {"source": "/mounts/a", "path": "/data"}]

    assert [bind.path for bind in volumes(*entries)] == ["/data", "/data/inner"]


def test_no_mounts_is_no_work() -> None:
    assert user_volumes("") == []


def test_a_volume_that_is_bound_already_is_not_bound_again(tmp_path: Path, jail: Path, mountinfo: Path) -> None:
    mounts, source = FakeMounts(), volume(tmp_path, "data")
    mountinfo.write_text(f"500 400 0:40 / {jail}/data rw - ext4 /dev/vda1 rw\n")

    bind_into_jail(jail, volumes({"source": source, "path": "/data"}), print, mountinfo, bind_mount=mounts)

    assert mounts.made == []


def test_a_volume_on_the_machines_own_disk_is_not_shown(tmp_path: Path, jail: Path, mountinfo: Path) -> None:
    mounts, source = FakeMounts(), volume(tmp_path, "data")
    bad = volumes({"source": source, "path": "/data", "filesystem": "virtiofs"})

    with pytest.raises(WrongFilesystemError, match="ext4 instead of virtiofs"):
        bind_into_jail(jail, bad, print, mountinfo, bind_mount=mounts)

    assert mounts.made == []


@pytest.mark.parametrize("link", ["data", "data/alice"])
def test_a_link_that_a_user_made_leads_nowhere(jail: Path, tmp_path: Path, link: str) -> None:
    outside = tmp_path / "etc"
    outside.mkdir()
    (jail / link).parent.mkdir(exist_ok=True)
    (jail / link).symlink_to(outside)

    with pytest.raises(JailViewError, match=f"/{link} is a symbolic link"):
        make_directory(jail, "/data/alice/set")

    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("link", ["run", "run/munge", "etc", "etc/hosts"])
def test_a_link_in_the_jail_never_turns_a_mount_on_the_pod(jail: Path, tmp_path: Path, link: str) -> None:
    """Root in the jail may make one anywhere, and the pod's own programs would be covered at its next start."""
    pod = tmp_path / "pod"
    for root in (pod, jail):
        (root / "run/munge").mkdir(parents=True)
        (root / "etc").mkdir()
        (root / "etc/hosts").touch()
    (jail / link).rename(tmp_path / "away")
    (jail / link).symlink_to(pod / link)
    mounts = FakeMounts()
    binds = [Bind(path=f"/{place}", source=str(pod / place)) for place in ("run/munge", "etc/hosts") if link in place]

    with pytest.raises(JailViewError, match=f"/{link} is a symbolic link"):
        bind_into_jail(jail, binds, print, bind_mount=mounts)

    assert mounts.made == []


def test_a_file_in_the_way_is_named(jail: Path) -> None:
    (jail / "data").write_text("results")

    with pytest.raises(JailViewError, match="/data is a file in the jail"):
        make_directory(jail, "/data/set")
