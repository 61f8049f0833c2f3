"""When slurmctld's own id goes, and what it waits for before."""

from __future__ import annotations

from pathlib import Path

from images.controller.cluster_id import ClusterId

WITHOUT = {"slurm.conf": "ClusterName=x\n"}
WITH = {
    "slurm.conf": "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=slurmdbd-0\n"
    "AccountingStoragePort=7000\n"
}


def test_the_own_id_goes_the_first_time_only(tmp_path: Path) -> None:
    answers = {"slurmdbd-0:7000": False}
    cluster = ClusterId(state=tmp_path, answers=answers.__getitem__)
    (tmp_path / "clustername").write_text("x|1")
    assert cluster.obstacle(WITHOUT) is None
    assert "slurmdbd at slurmdbd-0:7000" in str(cluster.obstacle(WITH))
    answers["slurmdbd-0:7000"] = True
    assert cluster.obstacle(WITH) is None
    cluster.prepare(WITH)
    assert not (tmp_path / "clustername").exists()

    (tmp_path / "clustername").write_text("x|2")
    answers["slurmdbd-0:7000"] = False
    assert cluster.obstacle(WITH) is None, "a slurmctld that is known to slurmdbd starts without it"
    cluster.prepare(WITH)
    assert (tmp_path / "clustername").exists()


def test_a_cluster_that_turned_accounting_off_takes_the_id_again(tmp_path: Path) -> None:
    cluster = ClusterId(state=tmp_path, answers=lambda _: True)
    cluster.prepare(WITH)
    cluster.prepare(WITHOUT)
    (tmp_path / "clustername").write_text("x|3")
    cluster.prepare(WITH)
    assert not (tmp_path / "clustername").exists()
