"""When slurmctld's own id goes; tests/slurm/test_accounting.py has real daemons."""

from __future__ import annotations

from pathlib import Path

from images.controller.cluster_id import ClusterId

WITHOUT = {"slurm.conf": "ClusterName=x\n"}
WITH = {
    "slurm.conf": "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=slurmdbd-0\n"
    "AccountingStoragePort=7000\n"
}


def test_a_cluster_that_turned_accounting_off_takes_the_id_again(tmp_path: Path) -> None:
    cluster = ClusterId(state=tmp_path, answers=lambda _: True)
    cluster.prepare(WITH)
    cluster.prepare(WITHOUT)
    (tmp_path / "clustername").write_text("x|3")
    cluster.prepare(WITH)
    assert not (tmp_path / "clustername").exists()
