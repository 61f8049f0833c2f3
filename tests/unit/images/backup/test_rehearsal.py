"""What a rehearsal is told of a backup while it is put back."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from cli.backup import verdict
from images.backup import rehearsal


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
    whole = rehearsal.compare_jail(listed, tmp_path, unrestored=0)
    assert (whole["files"], whole["bytes"], whole["different"]) == (6, 60, 0)
    files[1].write_text("twelve")
    os.chown(files[2], 10001, 10001)
    files[3].unlink()
    files[3].symlink_to("same")
    files[4].unlink()
    found = rehearsal.compare_jail(listed, tmp_path, unrestored=0)
    assert found["different"] == 4
    said = "\n".join(found["named"])
    for word in ("has 6 bytes, not 12", "belongs to 10001:10001, not to", "is no file", "is missing"):
        assert word in said


def test_files_that_restic_could_not_put_back_or_whose_content_is_another_count(tmp_path: Path) -> None:
    assert rehearsal.compare_jail([], tmp_path, unrestored=3)["different"] == 3


def test_when_the_queue_was_saved_and_which_jobs_have_scripts(tmp_path: Path) -> None:
    assert rehearsal.queue_of(tmp_path) == {"saved": 0, "scripts": []}
    head = struct.pack(">I", 17) + b"PROTOCOL_VERSION\0" + struct.pack(">HQI", 0x2A00, 1_764_000_000, 18)
    (tmp_path / "job_state").write_bytes(head)
    for name in ("hash.7/job.17", "hash.1/job.1", "hash.1/job.x"):
        (tmp_path / name).mkdir(parents=True)
    assert rehearsal.queue_of(tmp_path) == {"saved": 1_764_000_000, "scripts": [1, 17]}


def test_the_command_reads_what_the_containers_tell(capsys: pytest.CaptureFixture[str]) -> None:
    rehearsal.tell("state", saved=1, scripts=[17])
    written = f"restore: the next job\n{capsys.readouterr().out}restore: more\n"
    assert verdict.told_by(written) == {"state": {"saved": 1, "scripts": [17]}}
