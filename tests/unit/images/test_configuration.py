"""Published versions: what is in force changes in one step, and the last good one stays."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from images.controller.configuration import KEEP_VERSIONS, Store, config_hash, read_files


def version(number: int) -> dict[str, str]:
    return {"slurm.conf": f"MaxJobCount={number}\n", "cgroup.conf": ""}


def test_the_hash_is_that_of_the_canonical_json() -> None:
    files = {"b": "2\n", "a": "ä"}
    canonical = json.dumps(files, sort_keys=True, separators=(",", ":"))

    assert config_hash(files) == hashlib.sha256(canonical.encode()).hexdigest()[:16]
    assert config_hash(dict(reversed(files.items()))) == config_hash(files)


def test_the_files_can_be_read_by_slurms_user(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        Store(tmp_path / "store").publish(version(1))
    finally:
        os.umask(old)

    for path in [tmp_path / "store", *(tmp_path / "store").rglob("*")]:
        assert path.stat().st_mode & 0o004, path


def test_old_versions_are_dropped_but_never_the_one_before(tmp_path: Path) -> None:
    store = Store(tmp_path)
    hashes = [store.publish(version(number)) for number in range(KEEP_VERSIONS + 4)]

    kept = {path.name for path in (tmp_path / "versions").iterdir()}

    assert {hashes[-1], hashes[-2]} <= kept
    assert len(kept) <= KEEP_VERSIONS + 1


def test_a_version_that_a_crash_left_half_written_is_written_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    half = tmp_path / "versions" / config_hash(version(1))
    half.mkdir(parents=True)
    (half / "slurm.conf").write_text("Max")

    store.publish(version(1))

    assert store.files(config_hash(version(1))) == version(1)


def test_kubelets_own_entries_of_a_mounted_config_map_are_not_files(tmp_path: Path) -> None:
    data = tmp_path / "..2026_01"
    data.mkdir()
    (data / "slurm.conf").write_text("x")
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "slurm.conf").symlink_to("..data/slurm.conf")

    assert read_files(tmp_path) == {"slurm.conf": "x"}
