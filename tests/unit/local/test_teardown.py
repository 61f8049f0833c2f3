"""What `down` and `destroy` delete, also when they are cut short: nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from local import namespaces, paths, processes, teardown


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
    found = namespaces.below(namespaces.mount_points(MOUNTINFO), Path("/var/lib/slurmstack"))
    assert found == [
        "/var/lib/slurmstack/with space",
        "/var/lib/slurmstack/cluster/ns/control.net",
        "/var/lib/slurmstack/cluster/ns",
    ]


def test_down_in_another_directory_cannot_reach_this_clusters_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", "/srv/one")
    first = processes.root_name()
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", "/srv/two")
    assert processes.root_name() != first


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path / "root"))
    for name in ("slurm/jail", "slurm/controller-state", "other/jail"):
        (tmp_path / "root" / "volumes" / name / "home").mkdir(parents=True)
    return tmp_path


def test_the_files_of_one_namespace_go_and_links_in_them_lead_nowhere(filled: Path) -> None:
    (filled / "mine").mkdir()
    (filled / "mine" / "file").write_text("kept", encoding="utf-8")
    jail = filled / "root" / "volumes" / "slurm" / "jail"
    (jail / "link").symlink_to(filled / "mine")
    (jail / "home" / "all").symlink_to("/")
    assert teardown.remaining() == ["other/jail", "slurm/controller-state", "slurm/jail"]
    teardown.set_aside("slurm")
    assert teardown.remaining() == ["other/jail"], "out of sight at once"
    assert teardown.discard() == []
    assert [path.name for path in (filled / "root" / "volumes").iterdir()] == ["other"]
    assert (filled / "mine" / "file").read_text(encoding="utf-8") == "kept"


def test_what_was_cut_short_is_finished_and_a_new_cluster_meanwhile_is_not_touched(filled: Path) -> None:
    teardown.set_aside("slurm")
    new = filled / "root" / "volumes" / "slurm" / "jail"
    new.mkdir(parents=True)
    teardown.discard()
    assert new.is_dir()
    assert teardown.remaining() == ["other/jail", "slurm/jail"]
