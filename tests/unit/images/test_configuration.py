"""Published versions, of which the last good one stays, and which one is waited for and until when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from images.controller.await_config import await_config, wanted_of
from images.controller.configuration import KEEP_VERSIONS, Store, config_hash, read_files
from slurm import conf
from tests.fakes.commands import FakeClock


def version(number: int) -> dict[str, str]:
    return {"slurm.conf": f"MaxJobCount={number}\n", "cgroup.conf": ""}


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
    (data / "slurm.conf").write_text("ä")
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "slurm.conf").symlink_to("..data/slurm.conf")

    assert read_files(tmp_path) == {"slurm.conf": "ä"}
    mounted, named = wanted_of(["--mounted", str(tmp_path)]), wanted_of(["0123456789abcdef"])
    assert mounted is not None
    assert named is not None
    assert (mounted(), named()) == (conf.config_hash({"slurm.conf": "ä"}), "0123456789abcdef")


def test_a_mounted_configuration_that_changes_meanwhile_is_the_one_that_counts() -> None:
    mounted = iter(["first", "first", "second"])
    status = {"active": "second", "pending": None, "rejected": None}
    assert await_config(lambda: next(mounted), lambda: status, lambda _: None, FakeClock()) == 0


def test_the_rejection_of_another_configuration_is_none_of_ours() -> None:
    answers: Iterator[dict[str, Any]] = iter(
        [{"active": "old", "rejected": {"hash": "x", "message": "m"}}, {"active": "h", "rejected": None}]
    )
    assert await_config(lambda: "h", lambda: next(answers), lambda _: None, FakeClock()) == 0
