"""Looking at roots and removing them, while users write there."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from images.common import jail_roots
from images.common.log import Log
from images.common.process import RefusedError
from images.jail import roots
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


def test_names_that_would_write_on_a_terminal_do_not(volume: Path) -> None:
    (jail_roots.root_of(volume, "blue") / "opt/\x1b[2Jx\n").touch()
    (jail_roots.root_of(volume, "blue") / os.fsdecode(b"opt/\xff")).touch()
    assert sorted(roots.diff(volume, "blue")["added"]) == ["/opt/\\udcff", "/opt/\\x1b[2Jx\\n"]


def test_a_link_to_another_root_is_not_gone_into(volume: Path) -> None:
    root = jail_roots.root_of(volume, "blue")
    (root / "opt").rmdir()
    (root / "opt").symlink_to("../../..")
    assert roots.diff(volume, "blue")["changed"] == ["/opt"]
    roots.remove(volume, "blue", LOG)
    assert (volume / "usr/bin/one").exists()


def test_a_removed_root_is_gone_and_its_numbers_are_kept(volume: Path) -> None:
    root = jail_roots.root_of(volume, "blue")
    (root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nbob:x:10007:10007::/home/bob:/bin/sh\nx:x:junk\n")
    (root / "opt/closed").mkdir(mode=0)

    roots.remove(volume, "blue", LOG)

    assert sorted(path.name for path in (volume / jail_roots.ROOTS).iterdir()) == [".first", ".numbers.json"]
    assert jail_roots.kept_numbers(volume, "users") == {10007: "bob"}
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
