"""Files of the local cluster's volumes: deleted only for the one namespace, and nothing outside of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from local import volumes


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path / "root"))
    for name in ("slurm/jail", "slurm/controller-state", "other/jail"):
        (tmp_path / "root" / "volumes" / name / "home").mkdir(parents=True)
    return tmp_path


def test_the_files_of_one_namespace_go_and_links_in_them_lead_nowhere(root: Path) -> None:
    (root / "mine").mkdir()
    (root / "mine" / "file").write_text("kept", encoding="utf-8")
    jail = root / "root" / "volumes" / "slurm" / "jail"
    (jail / "link").symlink_to(root / "mine")
    (jail / "home" / "all").symlink_to("/")
    assert volumes.remaining() == ["other/jail", "slurm/controller-state", "slurm/jail"]
    volumes.set_aside("slurm")
    assert volumes.remaining() == ["other/jail"], "out of sight at once"
    assert volumes.discard() == []
    assert [path.name for path in (root / "root" / "volumes").iterdir()] == ["other"]
    assert (root / "mine" / "file").read_text(encoding="utf-8") == "kept"


def test_what_was_cut_short_is_finished_and_a_new_cluster_meanwhile_is_not_touched(root: Path) -> None:
    volumes.set_aside("slurm")
    new = root / "root" / "volumes" / "slurm" / "jail"
    new.mkdir(parents=True)
    volumes.discard()
    assert new.is_dir()
    assert volumes.remaining() == ["other/jail", "slurm/jail"]
