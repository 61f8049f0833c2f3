"""Looking at roots and removing them, while users write there."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from images.common import jail_roots
from images.common.log import Log
from images.common.process import RefusedError
from images.jail import populate as roots
from images.jail.populate import Wanted, populate, populate_root

SAID = io.StringIO()
LOG = Log("roots", SAID)


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    source, path = tmp_path / "image", tmp_path / "volume"
    path.mkdir()
    for name in ("etc", "home", "srv", "usr/bin", "usr/local/bin", "opt"):
        (source / name).mkdir(parents=True)
    (source / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    for name in ("one", "two", "three"):
        (source / "usr/bin" / name).write_text(name)
    (source / "usr/bin/link").symlink_to("one")
    assert populate(source, path, "24.11-abc", LOG, frozenset({"/"})) == 0
    wanted = Wanted(volume=path, name="blue", version="24.11-def", release="24.11")
    assert populate_root(source, wanted, LOG, frozenset({"/"})) == 0
    return path


def test_what_users_changed_is_shown_and_no_name_writes_on_a_terminal(volume: Path) -> None:
    root = jail_roots.root_of(volume, "blue")
    (root / "opt/\x1b[2Jx\n").touch()
    (root / os.fsdecode(b"opt/\xff")).touch()
    (root / "usr/local/bin/app/lib").mkdir(parents=True)
    (root / "usr/local/bin/app/run").touch()
    (root / "usr/bin/one").write_text("changed")
    (root / "usr/bin/two").unlink()
    (root / "home/alice").mkdir()

    found = roots.diff(volume, "blue")

    assert found["added"] == {"/opt/\\udcff": 1, "/opt/\\x1b[2Jx\\n": 1, "/usr/local/bin/app": 3}
    assert (found["changed"], found["removed"]) == (["/usr/bin/one"], ["/usr/bin/two"])
    assert found["counts"] == {"added": 5, "changed": 1, "removed": 1}


def test_roots_are_listed_with_their_size_without_what_all_share(volume: Path) -> None:
    (volume / "home/large").write_bytes(b"x" * 2**20)
    first, blue = roots.list_roots(volume, sizes=True)
    assert (first["name"], first["whole"], first["version"], first["more"]) == ("", True, "24.11-abc", False)
    assert (blue["name"], blue["release"], blue["carried_from"], blue["left_out"]) == ("blue", "24.11", None, 0)
    assert 0 < first["bytes"] < 2**20


def test_a_link_to_another_root_is_not_gone_into(volume: Path) -> None:
    root = jail_roots.root_of(volume, "blue")
    (root / "opt").rmdir()
    (root / "opt").symlink_to("../../..")
    assert roots.diff(volume, "blue")["changed"] == ["/opt"]
    roots.remove(volume, "blue", LOG)
    assert (volume / "usr/bin/one").exists()


def test_a_removed_root_is_gone(volume: Path) -> None:
    (jail_roots.root_of(volume, "blue") / "opt/closed").mkdir(mode=0)

    roots.remove(volume, "blue", LOG)

    assert [path.name for path in (volume / jail_roots.ROOTS).iterdir()] == [".first"]
    assert (volume / "usr/bin/one").exists()
    with pytest.raises(RefusedError, match="there is no root 'blue'"):
        roots.remove(volume, "blue", LOG)


def test_an_interrupted_removal_is_gone_on_with_and_the_root_is_no_longer_there_meanwhile(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(roots, "_empty", interrupted)
        with pytest.raises(KeyboardInterrupt):
            roots.remove(volume, "blue", LOG)
    assert jail_roots.whole(volume) == [""]

    roots.remove(volume, "blue", LOG)
    assert [path.name for path in (volume / jail_roots.ROOTS).iterdir() if "removing" in path.name] == []


def test_the_first_root_cannot_be_removed(volume: Path) -> None:
    for name in ("", ".first", "..", "."):
        with pytest.raises(RefusedError):
            roots.remove(volume, name, LOG)
    assert (volume / "usr/bin/one").exists()
