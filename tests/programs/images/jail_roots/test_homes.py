"""Homes on a volume of their own: where it is written down, who makes them, and that nobody sees an empty /home."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from images.common import jail_roots, readiness
from images.common.jail_view import make_home
from images.common.process import RefusedError
from images.jail import populate, users

ME = os.getuid() or 10001
ALICE = f'{{"users": {{"alice": {{"uid": {ME}, "gid": {ME}}}}}}}'


class Scene:
    """A jail's volume and one of homes, and the programs of the Jobs that write there."""

    def __init__(self, top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jail, self.homes, image = top / "jail", top / "shared/home", top / "image"
        for path in (self.jail, self.homes, *(image / name for name in ("etc/skel", "home", "srv"))):
            path.mkdir(parents=True)
        (image / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
        (image / "etc/skel/.profile").write_text("of the jail")
        (top / "users.json").write_text(ALICE)
        self._patch = monkeypatch
        monkeypatch.setattr(populate, "JAIL", self.jail)
        monkeypatch.setattr(users, "JAIL", self.jail)
        monkeypatch.setattr(populate, "Path", lambda path: image if path == "/" else Path(path))
        monkeypatch.setattr(populate, "mount_points", lambda: frozenset({"/"}))
        monkeypatch.setattr(sys, "argv", ["users", str(top / "users.json")])
        monkeypatch.setattr(os, "chown", lambda *_: None)  # of the volume's top; who runs this may not be root

    def run(self, *, apart: bool, root: str = "") -> None:
        """Both Jobs, one after the other."""
        self._tell(apart=apart, root=root)
        assert populate.main() == 0
        assert users.main() == 0

    def pod_starts(self, *, apart: bool, root: str = "") -> bool:
        """Whether a pod that leads into the root goes on."""
        self._tell(apart=apart, root=root)
        seen: list[bool] = []

        def wait_for(_what: str, there: Callable[[], bool], *_: Any, **__: Any) -> None:
            seen.append(there())

        with self._patch.context() as patch:
            patch.setattr(readiness, "wait_for", wait_for)
            readiness.wait_for_jail(jail_roots.root_of(self.jail, root), print)
        return all(seen)

    def _tell(self, *, apart: bool, root: str) -> None:
        self._patch.setenv("JAIL_VERSION", "24.11-abc")
        for name, value in (("JAIL_ROOT", root), ("HOMES", str(self.homes) if apart else "")):
            self._patch.setenv(name, value)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


@pytest.mark.parametrize("root", ["", "blue"])
def test_homes_are_made_on_their_volume_from_the_skeleton_of_the_jail(scene: Scene, root: str) -> None:
    scene.homes.chmod(0o777)  # as provisioners leave it

    scene.run(apart=True, root=root)

    assert (scene.homes / "alice/.profile").read_text() == "of the jail"
    assert (scene.homes / "alice").stat().st_mode & 0o7777 == 0o700
    assert scene.homes.stat().st_mode & 0o7777 == 0o755
    assert list((scene.jail / "home").iterdir()) == []
    assert scene.pod_starts(apart=True, root=root)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("root", ["", "green"])
def test_nobody_goes_on_where_homes_are_elsewhere_than_the_stack_file_says(
    scene: Scene, apart: bool, root: str
) -> None:
    scene.run(apart=apart)
    before = sorted(scene.jail.rglob("*"))

    with pytest.raises(SystemExit) as populating:
        scene.run(apart=not apart, root=root)
    with pytest.raises(SystemExit) as making:
        users.main()

    assert (populating.value.code, making.value.code) == (RefusedError.status,) * 2, "no use in trying again"
    assert sorted(scene.jail.rglob("*")) == before
    assert not scene.pod_starts(apart=not apart)
    assert scene.pod_starts(apart=apart)
    scene.run(apart=apart, root=root)
    assert scene.pod_starts(apart=apart, root=root)


def test_a_pod_waits_until_the_volume_is_known_to_have_homes(scene: Scene) -> None:
    scene.run(apart=True)
    (scene.jail / readiness.ACCOUNTS_MARKER).unlink()
    assert not scene.pod_starts(apart=True), "nobody has taken the volume's top from everybody yet"


def test_of_a_skeleton_links_are_taken_as_they_are_and_no_rights_of_others(tmp_path: Path) -> None:
    jail, skeleton = tmp_path, tmp_path / "etc/skel"
    skeleton.mkdir(parents=True)
    (skeleton / "key").symlink_to("/secrets/ssh/key")
    (skeleton / ".config/app").mkdir(parents=True)
    (skeleton / ".config/app/tool").write_text("tool")
    (skeleton / ".config/app/tool").chmod(0o4755)
    os.mkfifo(skeleton / "pipe")
    owner = (10001, 10002) if os.geteuid() == 0 else (os.getuid(), os.getgid())

    assert make_home(jail, "/home/lena", *owner)

    home = jail / "home/lena"
    tool = (home / ".config/app/tool").stat()
    assert str((home / "key").readlink()) == "/secrets/ssh/key"
    assert (tool.st_mode & 0o7777, home.stat().st_mode & 0o7777) == (0o755, 0o700)
    for path in (home, *home.rglob("*")):
        assert (path.lstat().st_uid, path.lstat().st_gid) == owner, path
    assert [path.name for path in (jail / "home").iterdir()] == ["lena"]
