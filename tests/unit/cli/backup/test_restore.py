"""The order in which a restore stops, saves, puts back and starts, and what it leaves where it was cut short."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from cli.backup.restore import Restoring, parts_of
from cli.change.owner import is_put_back, refuse_half_restored
from cli.errors import Failure, Refused
from tests.unit.cli.backup.cluster import REPORT, Cluster, failed, restored


def test_who_writes_is_stopped_first_then_all_is_saved_and_put_back_and_started() -> None:
    said = restored(Cluster(), "state", "database")
    put = said.index("run restore")
    assert said.index("run backup") < put
    stopped = [line.split()[1] for line in said[:put] if line.endswith("--replicas=0")]
    assert stopped[0] == "statefulset/controller"
    assert set(stopped[1:]) == {"deployment/elastic", "statefulset/cpu", "statefulset/gpu", "statefulset/slurmdbd"}
    begun = [line.split()[1:] for line in said[put:] if line.startswith("scale")]
    assert begun == [
        ["statefulset/slurmdbd", "--replicas=1"], ["statefulset/controller", "--replicas=1"],
        ["statefulset/cpu", "--replicas=4"], ["statefulset/gpu", "--replicas=2"],
        ["deployment/elastic", "--replicas=1"],
    ]  # fmt: skip


def test_the_database_alone_stops_no_job_and_slurmctld_takes_its_id_from_it() -> None:
    said = restored(Cluster(), "database")
    assert not [line for line in said if "/cpu" in line or "delete pod" in line]
    assert "scale statefulset/controller --replicas=0" in said


def test_the_jail_alone_leaves_slurmctld_alone() -> None:
    cluster = Cluster()
    said = restored(cluster, "jail")
    assert not [line for line in said if "controller" in line]
    assert "affinity" in cluster.jobs[0]["spec"]["template"]["spec"], "the copy is made beside slurmctld"
    assert "scale statefulset/login --replicas=0" in said


def test_where_the_restore_fails_nothing_is_started_and_the_same_again_knows_how_many_there_were() -> None:
    cluster = Cluster(restore_state=1)
    assert "`slurmstack restore --what state --at 20261126T020000Z` goes on" in failed(cluster, "state").hint
    assert "scale statefulset/cpu --replicas=4" not in cluster.said
    assert "suspend backup False" not in cluster.said
    with pytest.raises(Failure, match="was not finished") as told:
        refuse_half_restored(cluster.objects)
    assert "`slurmstack restore --what state --at 20261126T020000Z` goes on" in told.value.hint
    refused = failed(cluster, "state", "jail", says="a restore of state was not finished", what=Refused)
    assert refused.hint == "`slurmstack restore --what state --at 20261126T020000Z` goes on with it"
    cluster.ends, cluster.said = {}, []
    assert "scale statefulset/cpu --replicas=4" in restored(cluster, "state")
    assert "run backup" not in cluster.said, "what is half restored is nothing to go back to"
    assert cluster.said[-1] == "suspend backup False"
    refuse_half_restored(cluster.objects)


def test_what_is_left_stopped_is_no_half_restore_and_notes_the_backup_at_slurmctld() -> None:
    cluster = Cluster()
    Restoring(cluster.kubectl, "slurm", ["state", "database"], REPORT).run("20261126T020000Z", copy=False, start=False)
    refuse_half_restored(cluster.objects)
    (controller,) = cluster.items("statefulset", "controller")
    assert is_put_back(controller)
    failed(cluster, "state", copy=False, says="slurmdbd stopped by an earlier restore", what=Refused)
    assert "scale statefulset/cpu --replicas=4" in restored(cluster, "state", "database", copy=False)


@pytest.mark.parametrize("name", ["backup-29", "restore"])
def test_a_backup_or_another_restore_that_runs_is_not_interfered_with(name: str) -> None:
    cluster = Cluster()
    cluster.running = [name]
    failed(cluster, "state", says=f"the job {name} runs")
    assert cluster.said == []


def test_a_rehearsal_goes_on_meanwhile() -> None:
    cluster = Cluster()
    cluster.running = ["rehearse-20261126-020000-ab12"]
    assert "run restore" in restored(cluster, "state")


def test_parts_are_put_back_in_their_order_and_what_is_none_is_said() -> None:
    assert parts_of([], accounting=True) == ["state", "database", "jail"]
    assert parts_of(["all"], accounting=False) == ["state", "jail"]
    assert parts_of(["jail,state"], accounting=True) == ["state", "jail"]
    for what, told in (("jial", "--what jial: there is state"), ("database", "no accounting")):
        with pytest.raises(Failure, match=told):
            parts_of([what], accounting=False)


def test_an_interruption_leaves_the_job_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.backup.restore.follow_job", Mock(side_effect=KeyboardInterrupt))
    cluster = Cluster()
    failed(cluster, "state", copy=False, says="the job restore goes on in the cluster")
    assert "scale statefulset/cpu --replicas=4" not in cluster.said
