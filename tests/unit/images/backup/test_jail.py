"""What has come into the jail since a backup goes, and nothing else; and what a rehearsal is told of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from images.backup.restore import compare_jail
from images.backup.tidy import Spared, Tidy


def tidied(jail: Path, types: dict[str, str], **spared: frozenset[str]) -> list[str]:
    """What was said. `types`: what the backup has, in restic's order."""
    nodes = [{"message_type": "snapshot", "paths": ["/jail"]}, {"type": "dir", "path": str(jail)}]
    nodes += [{"message_type": "node", "type": kind, "path": f"{jail}/{path}"} for path, kind in types.items()]
    said: list[str] = []
    Tidy(Spared(largest=100, **spared), said.append).run(map(json.dumps, nodes), jail)
    return said


def tree(path: Path) -> set[str]:
    return {str(found.relative_to(path)) for found in path.rglob("*") if not found.is_dir() or found.is_symlink()}


def make(jail: Path, *files: str) -> None:
    for name in files:
        (jail / name).parent.mkdir(parents=True, exist_ok=True)
        (jail / name).write_text("text")


def test_what_the_backup_has_stays_and_what_has_come_since_goes(tmp_path: Path) -> None:
    jail, outside = tmp_path / "jail", tmp_path / "outside"
    make(jail, "home/alice/kept", "home/alice/new", "home/bob/new", "later/deep/er", "etc/motd")
    make(outside, "data")
    (jail / "home/mallory").symlink_to(outside)
    (jail / "home/alice/link").symlink_to(outside)

    tidied(jail, {
        "etc": "dir", "etc/motd": "file", "home": "dir", "home/alice": "dir", "home/alice/gone": "dir",
        "home/alice/gone/file": "file", "home/alice/kept": "file", "home/bob": "dir", "home/mallory": "dir",
        "home/mallory/x": "file",
    })  # fmt: skip

    assert tree(jail) == {"etc/motd", "home/alice/kept", "home/mallory"}
    assert tree(outside) == {"data"}, "no link was followed"
    assert not (jail / "later").exists()
    assert (jail / "home/bob").is_dir()


def test_a_directory_goes_where_the_backup_has_something_else(tmp_path: Path) -> None:
    make(tmp_path, "home/alice/data/deep/file")
    tidied(tmp_path, {"home": "dir", "home/alice": "dir", "home/alice/data": "symlink"})
    assert not list((tmp_path / "home/alice").iterdir())


def test_what_no_backup_was_to_have_stays(tmp_path: Path) -> None:
    make(tmp_path, "proc/1", "scratch/file", "old/file", "home/new/small", "data/scratch/file", "data/small")
    for large in ("home/large", "home/new/large"):
        (tmp_path / large).write_bytes(b"x" * 101)

    said = tidied(
        tmp_path,
        {"home": "dir", "old": "dir", "old/gone": "file", "proc": "dir"},
        paths=frozenset({"/scratch", "/old", "/data/scratch"}), contents=frozenset({"/proc"}),
    )  # fmt: skip

    assert tree(tmp_path) == {
        "proc/1", "scratch/file", "old/file", "home/large", "home/new/large", "data/scratch/file",
    }  # fmt: skip
    assert len(said) == 2
    assert all("too large for any backup" in line for line in said)


def test_a_name_that_is_not_utf_8_is_found_by_what_restic_makes_of_it(tmp_path: Path) -> None:
    jail = os.fsencode(tmp_path)
    Path(os.fsdecode(jail + b"/caf\xe9\xe2\x82/x")).mkdir(parents=True)
    Path(os.fsdecode(jail + b"/\xff")).touch()

    tidied(tmp_path, {"caf\ufffd\ufffd\ufffd": "dir", "caf\ufffd\ufffd\ufffd/x": "fifo"})

    assert [os.fsencode(path) for path in tmp_path.iterdir()] == [jail + b"/caf\xe9\xe2\x82"]
    assert not list(tmp_path.glob("caf*/x"))


def test_a_list_that_ends_early_takes_nothing_away_that_may_still_have_been_in_it(tmp_path: Path) -> None:
    make(tmp_path, "home/alice/file", "home/bob/file")

    def broken() -> object:
        yield json.dumps({"type": "dir", "path": f"{tmp_path}/home"})
        raise ConnectionError

    try:
        Tidy(Spared(largest=100), print).run(broken(), tmp_path)  # type: ignore[arg-type]
    except ConnectionError:
        assert tree(tmp_path) == {"home/alice/file", "home/bob/file"}
    else:
        raise AssertionError


def node(path: Path, **other: Any) -> str:
    """As `restic ls --json` has it."""
    found = path.lstat()
    kind = "dir" if path.is_dir() else "file"
    told = {"path": str(path), "type": kind, "uid": found.st_uid, "gid": found.st_gid, "size": found.st_size}
    return json.dumps({**told, **other})


def test_a_jail_that_is_as_it_was_is_said_to_be_so_and_each_difference_is_found(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    files = [tmp_path / "home" / name for name in ("same", "short", "owner", "kind", "gone")]
    for file in files:
        file.write_text("twelve bytes")
    listed = ['{"struct_type": "snapshot"}', node(tmp_path / "home"), *map(node, files)]
    whole = compare_jail(listed, tmp_path, unrestored=0)
    assert (whole["files"], whole["bytes"], whole["different"]) == (6, 60, 0)
    files[1].write_text("twelve")
    os.chown(files[2], 10001, 10001)
    files[3].unlink()
    files[3].symlink_to("same")
    files[4].unlink()
    found = compare_jail(listed, tmp_path, unrestored=0)
    assert found["different"] == 4
    said = "\n".join(found["named"])
    for word in ("has 6 bytes, not 12", "belongs to 10001:10001, not to", "is no file", "is missing"):
        assert word in said


def test_files_that_restic_could_not_put_back_or_whose_content_is_another_count(tmp_path: Path) -> None:
    assert compare_jail([], tmp_path, unrestored=3)["different"] == 3
