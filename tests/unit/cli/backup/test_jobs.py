"""Jobs that commands make from what the stack has in the cluster."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from cli.backup import jobs as backup_jobs
from cli.backup.jobs import run_job
from cli.errors import Failure
from cli.kubectl import jobs
from tests.unit.cli.backup.cluster import REPORT, Cluster, failed, restored


def test_a_cluster_without_backups_is_told_so() -> None:
    cluster = Cluster()
    cluster.objects.clear()
    with pytest.raises(Failure, match="this cluster has no backups"):
        run_job(cluster.kubectl, "slurm", "backup", REPORT)
    assert not cluster.jobs


def test_a_secret_that_nobody_has_made_is_told_at_once() -> None:
    cluster = Cluster()
    cluster.lacks = 'secret "backup" not found'
    with pytest.raises(Failure, match='did not start: secret "backup" not found') as caught:
        run_job(cluster.kubectl, "slurm", "backup", REPORT)
    assert "docs/backups.md" in caught.value.hint
    assert cluster.said[-1].startswith("delete job backup-2"), "it would start when somebody has made that"


def test_kubernetes_counts_what_does_all_that_a_cronjob_does_for_it() -> None:
    """Alerts look at the CronJob's last success. A backup without the jail is none."""
    cluster = Cluster()
    for how in ({"arguments": ["verify"]}, {"without": {"backup-jail"}}, {"image": "of-another-release"}):
        run_job(cluster.kubectl, "slurm", "backup", REPORT, **how)
    (cronjob,) = cluster.items("cronjob", "backup")
    owned, *others = [job["metadata"].get("ownerReferences") for job in cluster.jobs]
    assert [(owner["kind"], owner["uid"]) for owner in owned] == [("CronJob", cronjob["metadata"]["uid"])]
    assert others == [None, None]


def test_a_restore_of_the_jail_needs_no_volume_of_slurmctld_and_no_database() -> None:
    cluster = Cluster()
    restored(cluster, "jail", copy=False)
    pod = cluster.jobs[-1]["spec"]["template"]["spec"]
    names = [item["name"] for item in [*pod["initContainers"], *pod["containers"]]]
    assert names == ["restore-jail", "users"], "accounts are those of the stack file"
    assert not {volume["name"] for volume in pod["volumes"]} & {"state", "run", "slurmdbd-conf"}


def test_a_pod_that_cannot_start_is_told_with_the_reason_and_all_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "STUCK", -1)
    cluster = Cluster()
    cluster.kept = "FailedMount: no such volume"
    failed(cluster, "jail", copy=False, says="did not start: FailedMount: no such volume")
    assert "delete job restore --ignore-not-found --cascade=foreground" in cluster.said
    assert "scale statefulset/login --replicas=2" in cluster.said
    assert cluster.said[-1] == "suspend backup False"


def test_whoever_ends_a_command_ends_what_it_has_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears the answer, and a restore would wait for its end. A pipeline that is cancelled sends SIGTERM."""
    cluster, by_signals = Cluster(), Mock()

    monkeypatch.setattr(backup_jobs, "be_interruptible", by_signals)
    monkeypatch.setattr(backup_jobs, "follow_job", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_job(cluster.kubectl, "slurm", "backups", REPORT)
    by_signals.assert_called_once_with()
    made = cluster.jobs[-1]["metadata"]["name"]
    assert cluster.said[-1] == f"delete job {made} --ignore-not-found --wait=false"


def test_what_a_container_said_last_is_the_message() -> None:
    with pytest.raises(Failure, match=r"^backup-state: the store is away$"):
        run_job(Cluster(backup_state=1).kubectl, "slurm", "backup", REPORT)
