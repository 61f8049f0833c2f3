"""Carrying paths from one root into a new one, where users write and want something by it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from images.common import jail_roots
from images.common.process import CannotGoOnError, RefusedError
from images.jail import changes as carry_module
from images.jail.populate import IN_PROGRESS, Wanted, populate, populate_root

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
    app.chmod(0o2775)

    new = scene.carry() / "opt/app"

    assert (new / "bin/run").read_text() == "run"
    assert (new / "bin/run").stat().st_mode & 0o7777 == 0o751
    assert (new / "bin/run").stat().st_mtime == 1_000_000
    assert (new / "bin/run").stat().st_ino == (new / "bin/again").stat().st_ino
    assert (new / "current").readlink() == Path("bin/run")
    assert new.stat().st_mode & 0o7777 == 0o2775
    known = jail_roots.filled(scene.volume, "blue")
    assert known is not None
    assert (known.carried_from, known.left_out) == ("", 0)
    assert sorted(path.name for path in jail_roots.directory_of(scene.volume, "blue").iterdir()) == [
        "filled.json", "manifest", "root",
    ]  # fmt: skip


def test_files_of_the_old_image_stay_behind_and_those_that_users_changed_win(scene: Scene) -> None:
    (scene.volume / "usr/local/bin/tool").write_text("changed by an administrator")
    (scene.volume / "usr/local/share").chmod(0o2775)

    new = scene.carry() / "usr/local"

    assert (new / "bin/seff").read_text() == "new"
    assert (new / "bin/tool").read_text() == "changed by an administrator"
    assert (new / "share").stat().st_mode & 0o7777 == 0o2775


def test_nothing_is_carried_from_a_root_that_is_not_whole(scene: Scene) -> None:
    (jail_roots.make_directory_of(scene.volume, "green") / "root/opt").mkdir(parents=True)
    for source in ("green", "gone"):
        with pytest.raises(RefusedError, match=f"the root '{source}' is not whole, so nothing can be carried from it"):
            scene.carry("/opt", source=source)
    assert not jail_roots.root_of(scene.volume, "blue").exists(), "nothing was begun"


def test_what_is_no_file_holds_nothing_up_and_what_is_missing_is_named(scene: Scene) -> None:
    opt = scene.volume / "opt"
    os.mkfifo(opt / "pipe")
    (opt / "key").symlink_to("/etc/shadow")
    (scene.volume / "sw").symlink_to("opt")
    (scene.volume / "usr/local/man").unlink()
    (scene.volume / "usr/local/man").mkdir()

    new = scene.carry("/opt", "/usr/local", "/sw/x", "/etc/nothing")

    assert (new / "opt/key").readlink() == Path("/etc/shadow")
    assert (new / "usr/local/man").is_dir()
    assert not (new / "usr/local/man").is_symlink()
    for path in ("/sw/x", "/etc/nothing"):
        assert f"left out: {path}: there is no such path, or a link leads to it" in scene.said
    known = jail_roots.filled(scene.volume, "blue")
    assert known is not None
    assert known.left_out == 2


def test_holes_stay_holes(scene: Scene) -> None:
    with (scene.volume / "opt/holes").open("wb") as file:
        file.truncate(2**42)
        file.seek(2**30)
        file.write(b"data")
    new = scene.carry() / "opt/holes"
    assert (new.stat().st_size, new.stat().st_blocks * 512 < 2**20) == (2**42, True)
    with new.open("rb") as copied:
        copied.seek(2**30)
        assert copied.read(4) == b"data"


def test_a_volume_without_room_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carry_module, "_KEPT_FREE", 1)  # all of the volume is to stay free
    (scene.volume / "opt/large").write_bytes(b"x" * 2**16)
    with pytest.raises(RefusedError, match=r"^jail\.carry: what is carried has 0\.0 GiB, and the volume has"):
        scene.carry()
    assert jail_roots.filled(scene.volume, "blue") is None
    assert not (jail_roots.root_of(scene.volume, "blue") / "opt/large").exists()


def test_a_file_that_is_there_by_half_keeps_the_root_from_being_whole(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the volume becomes full meanwhile."""
    (scene.volume / "opt/large").write_bytes(b"x" * 2**20)
    limited = ["prlimit", "--fsize=4096", "tar"]
    popen = subprocess.Popen
    with monkeypatch.context() as patch:
        patch.setattr(
            subprocess,
            "Popen",
            lambda argv, **more: popen([*limited, *argv[1:]] if "--extract" in argv else argv, **more),
        )
        with pytest.raises(CannotGoOnError, match="/opt could not be carried as a whole: "):
            scene.carry()
    assert jail_roots.filled(scene.volume, "blue") is None

    assert (scene.carry() / "opt/large").stat().st_size == 2**20, "the next run goes on"
    assert not (jail_roots.root_of(scene.volume, "blue") / IN_PROGRESS).exists()


@AS_ROOT
def test_directories_above_a_path_are_as_they_were(scene: Scene) -> None:
    sw = scene.volume / "sw/team"
    (sw / "app").mkdir(parents=True)
    for path, mode, owner in ((sw.parent, 0o711, 0), (sw, 0o2770, 10007), (sw / "app", 0o700, 10008)):
        os.chown(path, owner, owner)
        path.chmod(mode)

    new = scene.carry("/sw/team/app") / "sw"

    for path, mode, owner in ((new, 0o711, 0), (new / "team", 0o2770, 10007), (new / "team/app", 0o700, 10008)):
        assert (path.stat().st_mode & 0o7777, path.stat().st_uid) == (mode, owner), path
