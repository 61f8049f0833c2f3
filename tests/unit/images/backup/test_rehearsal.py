"""What a rehearsal is told of a backup while it is put back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from images.backup.restore import compare_jail


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
