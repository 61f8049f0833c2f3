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

    def left_out(self) -> list[str]:
        return [line for line in self.said if line.startswith("left out: ")]


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


@AS_ROOT
def test_a_file_that_is_swapped_while_it_is_carried_gives_nobody_the_rights_of_another(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owner and mode of root's set-user-ID program must never come with the content of a user's file."""
    own, mine = scene.volume / "opt/own", scene.volume / "opt/mine"
    own.write_text("root's")
    own.chmod(0o4755)
    mine.write_text("a user's")
    os.chown(mine, 10007, 10007)
    file = carry_module.Carrying._file

    def swapped(self: carry_module.Carrying, probe: int, path: str) -> None:
        if path == "/opt/own":
            own.rename(own.with_name("away"))
            mine.rename(own)
        file(self, probe, path)

    monkeypatch.setattr(carry_module.Carrying, "_file", swapped)
    new = scene.carry() / "opt/own"

    found = new.stat()
    assert (new.read_text(), found.st_uid, found.st_mode & 0o7777) in {
        ("root's", 0, 0o4755), ("a user's", 10007, 0o644),
    }  # fmt: skip


@AS_ROOT
def test_what_a_user_made_runs_with_no_other_rights_than_before(scene: Scene) -> None:
    tool = scene.volume / "opt/tool"
    tool.write_text("x")
    os.chown(tool, 10007, 10007)
    tool.chmod(0o6755)

    new = scene.carry() / "opt/tool"

    assert (new.stat().st_uid, new.stat().st_mode & 0o7777) == (10007, 0o755)
    assert any("/opt/tool" in line and "lost its set-user-ID" in line for line in scene.said)


def test_what_is_no_file_is_left_out_and_named_and_the_root_is_filled(scene: Scene) -> None:
    opt = scene.volume / "opt"
    os.mkfifo(opt / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    with contextlib.chdir(opt):  # the path is too long for a socket's address
        listening.bind("socket")
    (opt / "last").write_text("x")
    (scene.volume / "usr/local/bin/tool").unlink()
    (scene.volume / "usr/local/bin/tool").mkdir()
    (scene.volume / "usr/local/man").unlink()
    (scene.volume / "usr/local/man").mkdir()
    (scene.volume / "usr/local/share").rmdir()
    (scene.volume / "usr/local/share").touch()

    new = scene.carry("/opt", "/usr/local", "/sw/x")

    assert (new / "opt/last").exists()
    assert (new / MARKER).exists()
    reasons = "\n".join(scene.left_out())
    for part in (
        "/opt/pipe: it is no file",
        "/opt/socket: it is no file",
        "/sw/x: there is no such",
        "/usr/local/bin/tool: the new image has something else",
        "/usr/local/man: the new image has",
        "/usr/local/share: the new image has",
    ):
        assert part in reasons
    known = jail_roots.filled(scene.volume, "blue")
    assert known is not None
    assert known.left_out == 6


def test_a_directory_that_becomes_a_link_meanwhile_leads_nowhere(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = scene.volume / "root"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (scene.volume / "opt/dir").mkdir()
    directory = carry_module.Carrying._directory

    def swapped(self: carry_module.Carrying, *arguments: object) -> None:
        if arguments[2] == "/opt/dir":
            (scene.volume / "opt/dir").rename(scene.volume / "opt/away")
            (scene.volume / "opt/dir").symlink_to("../root")
        directory(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(carry_module.Carrying, "_directory", swapped)
    assert not list(scene.carry().rglob("key"))


@pytest.mark.parametrize(
    ("limit", "value", "why"), [("_KEPT_FREE", 1, "room for it"), ("_FILES_FREE", 2**62, "room for more files")]
)
def test_what_the_volume_has_no_room_for_is_left_out_and_named_and_the_root_is_filled(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, why: str
) -> None:
    if limit == "_FILES_FREE" and not os.statvfs(scene.volume).f_files:
        pytest.skip("this file system has no limit of files")
    (scene.volume / "opt/app").mkdir()
    (scene.volume / "opt/app/large").write_text("x")
    (scene.volume / "opt/app/link").symlink_to("large")
    monkeypatch.setattr(carry_module, limit, value)

    new = scene.carry()

    assert scene.left_out() == [f"left out: /opt/app/large: the volume has no {why}"]
    assert [path.name for path in (new / "opt/app").iterdir()] == ["link"], "the others are carried"
    assert (new / MARKER).exists()


def test_an_interrupted_run_is_gone_on_with(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        (scene.volume / f"opt/{number}").write_text(str(number))
    content = carry_module.Carrying._content

    def interrupted(self: carry_module.Carrying, old: int, copy: int, size: int, path: str) -> None:
        if self.carried >= 5:
            os.write(copy, b"half")
            raise KeyboardInterrupt
        content(self, old, copy, size, path)

    with monkeypatch.context() as patch:
        patch.setattr(carry_module.Carrying, "_content", interrupted)
        with pytest.raises(KeyboardInterrupt):
            scene.carry()
    assert jail_roots.filled(scene.volume, "blue") is None

    new = scene.carry()

    assert {path.name: path.read_text() for path in (new / "opt").iterdir()} == {str(n): str(n) for n in range(10)}
    assert not (new / IN_PROGRESS).exists()


@AS_ROOT
def test_directories_above_a_path_are_as_they_were_but_for_those_of_the_new_image(scene: Scene) -> None:
    """Who had sudo once in the old root must not own /etc or /usr of the new one."""
    sw = scene.volume / "sw/team"
    (sw / "app").mkdir(parents=True)
    for path, mode, owner in ((sw.parent, 0o711, 0), (sw, 0o2770, 10007), (sw / "app", 0o700, 10008)):
        os.chown(path, owner, owner)
        path.chmod(mode)
    os.chown(scene.volume / "usr", 10007, 10007)
    (scene.volume / "usr").chmod(0o777)

    root = scene.carry("/sw/team/app", "/usr/local")
    new = root / "sw"

    for path, mode, owner in ((new, 0o711, 0), (new / "team", 0o2770, 10007), (new / "team/app", 0o700, 10008)):
        assert (path.stat().st_mode & 0o7777, path.stat().st_uid) == (mode, owner), path
    assert ((root / "usr").stat().st_mode & 0o7777, (root / "usr").stat().st_uid) == (0o755, 0)
