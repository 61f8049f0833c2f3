"""Carrying paths from one root into a new one, where users write and want something by it."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest

from images.common import jail_roots
from images.common.process import RefusedError
from images.jail import carry as carry_module
from images.jail.populate import IN_PROGRESS, MARKER, Wanted, populate, populate_root

AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="gives files to others")


class Scene:
    """A first root from one image, and a new one of another that carries from it."""

    def __init__(self, directory: Path) -> None:
        self.volume = directory / "volume"
        self.volume.mkdir()
        self.old_image, self.new_image = directory / "old", directory / "new"
        for image, text in ((self.old_image, "old"), (self.new_image, "new")):
            for name in ("etc/profile.d", "home", "srv", "opt", "usr/local/bin", "usr/local/share"):
                (image / name).mkdir(parents=True)
            (image / "usr/local/bin/seff").write_text(text)
            (image / "usr/local/bin/tool").write_text(f"the {text} one")
            (image / "usr/local/man").symlink_to("share")
        self.said: list[str] = []
        assert populate(self.old_image, self.volume, "24.11-old", self.said.append, frozenset({"/"})) == 0

    def carry(self, *paths: str, source: str = "") -> Path:
        wanted = Wanted(
            volume=self.volume, name="blue", version="24.11-new", release="24.11",
            carried=paths or ("/opt", "/usr/local"), carried_from=source,
        )  # fmt: skip
        assert populate_root(self.new_image, wanted, self.said.append, frozenset({"/"})) == 0
        return jail_roots.root_of(self.volume, "blue")

    def left_out(self) -> str:
        return "\n".join(line for line in self.said if line.startswith("left out: "))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_what_users_installed_comes_along_with_owner_mode_times_and_links(scene: Scene) -> None:
    app = scene.volume / "opt/app"
    (app / "bin").mkdir(parents=True)
    (app / "bin/run").write_text("run")
    (app / "bin/run").chmod(0o751)
    (app / "bin/again").hardlink_to(app / "bin/run")
    (app / "current").symlink_to("bin/run")
    os.utime(app / "bin/run", (1_000_000, 1_000_000))
    (app / "bin/holes").touch()
    os.truncate(app / "bin/holes", 2**40)
    app.chmod(0o2775)

    new = scene.carry() / "opt/app"

    assert (new / "bin/run").read_text() == "run"
    assert (new / "bin/run").stat().st_mode & 0o7777 == 0o751
    assert (new / "bin/run").stat().st_mtime == 1_000_000
    assert (new / "bin/run").stat().st_ino == (new / "bin/again").stat().st_ino
    assert (new / "current").readlink() == Path("bin/run")
    assert ((new / "bin/holes").stat().st_size, (new / "bin/holes").stat().st_blocks) == (2**40, 0)
    assert new.stat().st_mode & 0o7777 == 0o2775
    known = jail_roots.filled(scene.volume, "blue")
    assert known is not None
    assert (known.carried_from, known.left_out) == ("", 0), scene.said


def test_files_of_the_old_image_stay_behind_and_those_that_users_changed_win(scene: Scene) -> None:
    (scene.volume / "usr/local/bin/tool").write_text("changed by an administrator")
    (scene.volume / "usr/local/share").chmod(0o2775)

    new = scene.carry() / "usr/local"

    assert (new / "bin/seff").read_text() == "new"
    assert (new / "bin/tool").read_text() == "changed by an administrator"
    assert (new / "share").stat().st_mode & 0o7777 == 0o2775


def test_without_a_list_of_the_old_roots_files_those_of_the_new_image_win(scene: Scene) -> None:
    (jail_roots.directory_of(scene.volume, "") / jail_roots.MANIFEST).unlink()
    (scene.volume / "usr/local/bin/tool").write_text("changed by an administrator")
    (scene.volume / "usr/local/bin/own").touch()

    new = scene.carry() / "usr/local/bin"

    assert (new / "tool").read_text() == "the new one"
    assert (new / "own").exists()


def test_nothing_is_carried_from_a_root_that_is_not_whole(scene: Scene) -> None:
    (jail_roots.make_directory_of(scene.volume, "green") / "root/opt").mkdir(parents=True)
    for source in ("green", "gone"):
        with pytest.raises(RefusedError, match=f"the root '{source}' is not whole, so nothing can be carried from it"):
            scene.carry("/opt", source=source)
    assert not jail_roots.root_of(scene.volume, "blue").exists(), "nothing was begun"


def test_what_the_volume_has_no_room_for_is_refused_before_anything_is_begun(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scene.volume / "opt/large").write_bytes(os.urandom(2**21))
    full = os.statvfs_result((4096, 4096, 1000, 60, 60, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(
        RefusedError, match=r"jail\.carry: /opt, /sw have 2 MiB, and the volume has room for 0 MiB more"
    ):
        scene.carry("/opt", "/sw")
    assert not jail_roots.root_of(scene.volume, "blue").exists()


@AS_ROOT
def test_directories_above_a_path_are_as_they_were(scene: Scene) -> None:
    sw = scene.volume / "sw/team"
    (sw / "app").mkdir(parents=True)
    for path, mode, owner in ((sw.parent, 0o711, 0), (sw, 0o770, 10007), (sw / "app", 0o700, 10008)):
        os.chown(path, owner, owner)
        path.chmod(mode)

    new = scene.carry("/sw/team/app") / "sw"

    for path, mode, owner in ((new, 0o711, 0), (new / "team", 0o770, 10007), (new / "team/app", 0o700, 10008)):
        assert (path.stat().st_mode & 0o7777, path.stat().st_uid) == (mode, owner), path


def test_what_cannot_be_carried_is_left_out_and_named_and_the_root_is_filled(scene: Scene) -> None:
    opt = scene.volume / "opt"
    listening = socket.socket(socket.AF_UNIX)
    with contextlib.chdir(opt):  # the path is too long for a socket's address
        listening.bind("socket")
    (opt / "last").write_text("x")
    (scene.volume / "usr/local/bin/tool").unlink()
    (scene.volume / "usr/local/bin/tool").write_text("x")
    (scene.new_image / "usr/local/bin/tool").unlink()
    (scene.new_image / "usr/local/bin/tool/full").mkdir(parents=True)

    new = scene.carry("/opt", "/usr/local", "/sw/x")

    assert (new / "opt/last").exists()
    assert (new / MARKER).exists()
    for part in (
        "opt/socket: socket ignored",
        "local/bin/tool: Cannot open: File exists",
        "/sw/x: there is no such path",
    ):
        assert part in scene.left_out()
    known = jail_roots.filled(scene.volume, "blue")
    assert known is not None
    assert known.left_out >= 3


def test_a_link_on_the_way_leads_nowhere(scene: Scene) -> None:
    """Whoever may write in a directory of a path can put one there, to files that only root may read."""
    (scene.volume / "root/inner").mkdir(parents=True)
    (scene.volume / "root/inner/key").write_text("secret")
    (scene.volume / "opt/dir").symlink_to("../root")

    new = scene.carry("/opt/dir/inner", "/opt")

    assert not list(new.rglob("key"))
    assert "/opt/dir/inner: there is no such path, or a link is on the way" in scene.left_out()
    assert (new / "opt/dir").readlink() == Path("../root")


def test_an_interrupted_run_is_gone_on_with(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    (scene.volume / "opt/own").write_text("own")
    with monkeypatch.context() as patch:
        patch.setattr(carry_module.Carrying, "_tell", lambda *_: None)
        patch.setattr("images.jail.populate.jail_roots.write_filled", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scene.carry()
    assert jail_roots.filled(scene.volume, "blue") is None

    new = scene.carry()

    assert (new / "opt/own").read_text() == "own"
    assert not (new / IN_PROGRESS).exists()
