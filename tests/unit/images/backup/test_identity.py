"""Whose backups are this cluster's; tests/slurm/test_backup_troubles.py rotates keys with real restic."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import cast

import pytest

from images.backup import backups
from images.backup.backups import Backup, Clusters, choose, new_name, refuse_another_cluster
from images.backup.restic import Repository
from images.common.command import Result
from images.common.log import Log
from images.common.process import RefusedError

FIRST, SECOND, THIRD, NOW = (f"202611{day}T020000Z" for day in (24, 25, 26, 27))


class Site:
    """A cluster with its keys, and the repository that it saves itself in."""

    def __init__(self, place: Path) -> None:
        self.keys = place / "keys"
        self._place = place
        self.backups: list[Backup] = []
        for name in ("munge-key/munge.key", "jwt-key/jwt_hs256.key"):
            (self.keys / name).parent.mkdir(parents=True)
            self.rotate(name, "of the first cluster")

    def rotate(self, key: str, value: str) -> None:
        (self.keys / key).write_text(f"{key} {value}")

    def run(self, *arguments: str) -> Result:
        """`restic restore SNAPSHOT:DIRECTORY --target DIRECTORY`."""
        snapshot, _, directory = arguments[1].partition(":")
        assert (arguments[0], directory, arguments[2]) == ("restore", "/handover/keys", "--target")
        shutil.copytree(self._place / snapshot, arguments[3])
        return Result(code=0)

    @property
    def clusters(self) -> Clusters:
        return Clusters(cast("Repository", self), self.backups, Log("test"))

    def save(self, backup: str, kind: str = "scheduled", *, name: str = "") -> None:
        """`name`: as a program before this one gave it."""
        cluster = name or self.clusters.name_of(self.keys)
        if kind == "scheduled":
            refuse_another_cluster(self.backups, cluster, "s3")
        shutil.copytree(self.keys, self._place / f"keys-{backup}")
        snapshots = {"keys": f"keys-{backup}", "state": "x"}
        self.backups.append(
            Backup(id=backup, kind=kind, wanted=("keys", "state"), snapshots=snapshots, sizes={}, cluster=cluster)
        )

    def last(self) -> str:
        return choose(self.backups, "", ["state"], now=NOW, is_same=self.clusters.is_same).id


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(backups, "_READ_KEYS", tmp_path / "read")
    return Site(tmp_path)


def test_who_has_begun_anew_by_hand_after_a_rotation_need_not_name_the_backup(site: Site) -> None:
    site.save(FIRST)
    site.rotate("munge-key/munge.key", "rotated")
    site.save(SECOND, "manual", name=new_name(site.keys))
    site.save(THIRD)
    assert site.backups[0].cluster != site.backups[2].cluster
    assert site.last() == THIRD


def test_an_empty_key_is_no_key_in_common(site: Site) -> None:
    (site.keys / "jwt-key/jwt_hs256.key").write_text("")
    site.save(FIRST)
    site.rotate("munge-key/munge.key", "of another")
    with pytest.raises(RefusedError, match="of another cluster"):
        site.save(SECOND)
