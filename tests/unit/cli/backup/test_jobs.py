"""Jobs that commands make from what the stack has in the cluster."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from cli.backup import jobs
from cli.backup.jobs import run_job
from cli.errors import Failure
from tests.unit.cli.backup.cluster import REPORT, Cluster


def test_what_nobody_has_made_is_missed_before_a_pod_waits_for_it() -> None:
    cluster = Cluster()
    cluster.objects.pop()
    with pytest.raises(Failure, match="there is no Secret backup in the namespace slurm"):
        run_job(cluster.kubectl, "slurm", "backup", REPORT)
    cluster.objects.clear()
    with pytest.raises(Failure, match="this cluster has no backups"):
        run_job(cluster.kubectl, "slurm", "backup", REPORT)
    assert not cluster.jobs


def test_a_job_is_as_the_stack_says_but_for_what_the_command_tells_it() -> None:
    cluster = Cluster()
    run_job(cluster.kubectl, "slurm", "backups", REPORT, env={"READ": "all"}, arguments=["verify"])
    (container,) = cluster.jobs[-1]["spec"]["template"]["spec"]["containers"]
    assert container["command"][-2:] == ["/usr/libexec/slurmstack/backups", "verify"]
    assert cluster.environment()["READ"] == "all"
    assert cluster.environment()["REPOSITORY"].endswith("/site-backups/slurm")
    assert container["securityContext"]["readOnlyRootFilesystem"]


def test_only_the_containers_that_are_wanted_run_with_their_volumes_and_anywhere_where_slurmctld_is_away() -> None:
    cluster = Cluster()
    run_job(cluster.kubectl, "slurm", "backup", REPORT, only={"backup-state", "backup-database"}, anywhere=True)
    pod = cluster.jobs[-1]["spec"]["template"]["spec"]
    assert [item["name"] for item in pod["initContainers"]] == ["backup-state"]
    assert [item["name"] for item in pod["containers"]] == ["backup-database"]
    assert "affinity" not in pod
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert "state" in volumes
    assert "jail" not in volumes


def test_an_api_server_that_is_away_for_a_moment_ends_nothing() -> None:
    cluster = Cluster()
    cluster.silent = 5
    assert run_job(cluster.kubectl, "slurm", "backup", REPORT)


def test_whoever_interrupts_a_command_ends_what_it_has_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears the answer, and a restore would wait for its end."""
    cluster = Cluster()

    monkeypatch.setattr(jobs, "follow_job", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_job(cluster.kubectl, "slurm", "backups", REPORT)
    made = cluster.jobs[-1]["metadata"]["name"]
    assert cluster.said[-1] == f"delete job {made} --ignore-not-found --wait=false"


def test_what_a_container_said_last_is_the_message() -> None:
    with pytest.raises(Failure, match=r"^backup-state: the store is away$"):
        run_job(Cluster(backup_state=1).kubectl, "slurm", "backup", REPORT)
