"""What `down` and `destroy` delete, also when they are cut short: nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from local import mounts, paths, teardown


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of a cluster that does not run."""
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    for name in ("cluster/nodes/node-0", "volumes/slurm", "cache/tools"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text("content")
    return tmp_path


def test_it_deletes_cluster_and_volumes_and_keeps_the_cache(directory: Path) -> None:
    assert teardown.discard_files() == []
    assert [path.name for path in directory.iterdir()] == ["cache"]


def test_cut_short_between_cluster_and_volumes_both_go(directory: Path) -> None:
    paths.removed().mkdir()
    paths.cluster().rename(paths.removed() / "cluster-0")
    assert teardown.finish_removal() == []
    assert not paths.volumes().exists()
    assert not paths.removed().exists()


def test_without_a_removal_under_way_nothing_is_deleted(directory: Path) -> None:
    assert teardown.finish_removal() == []
    assert (paths.volumes() / "slurm" / "file").exists()


MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 27 254:0 /var /var/lib/slurmstack/cluster/ns rw - ext4 /dev/vda rw
41 40 0:4 net:[4026] /var/lib/slurmstack/cluster/ns/control.net rw - nsfs nsfs rw
42 27 0:9 / /var/lib/slurmstack-of-another rw - tmpfs tmpfs rw
43 27 0:9 / /var/lib/slurmstack/with\040space rw - tmpfs tmpfs rw
"""


def test_only_mounts_below_the_directory_and_not_beside_it_are_found_the_last_first() -> None:
    found = mounts.below(mounts.mount_points(MOUNTINFO), Path("/var/lib/slurmstack"))
    assert found == [
        "/var/lib/slurmstack/with space",
        "/var/lib/slurmstack/cluster/ns/control.net",
        "/var/lib/slurmstack/cluster/ns",
    ]
