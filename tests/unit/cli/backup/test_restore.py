"""The order in which a restore stops, saves, puts back and starts, and what it leaves where it was cut short."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from cli.backup import restore as restore_module
from cli.backup.jobs import follow_job
from cli.backup.restore import Restoring, forget_restore, parts_of
from cli.backup.workloads import Workloads
from cli.change.in_place import is_put_back
from cli.change.owner import REPLICAS_BEFORE, is_stopped, refuse_half_restored
from cli.errors import INTERRUPTED, Failure, Refused
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
    assert [line for line in said if line == "scale statefulset/login --replicas=0"]


def test_what_is_replaced_is_saved_as_such_and_no_part_more() -> None:
    cluster = Cluster()
    restored(cluster, "database")
    copied = cluster.jobs[0]["spec"]["template"]["spec"]
    assert [item["name"] for item in copied["containers"]] == ["backup-database"]
    told = {item["name"]: item["value"] for item in copied["initContainers"][0]["env"]}
    assert (told["KIND"], told["PARTS"]) == ("before-restore", "state database")


def test_where_the_copy_fails_nothing_was_touched_and_all_runs_again_and_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Workloads, "wait_ready", Mock(side_effect=AssertionError))
    cluster = Cluster(backup_state=1)
    assert "nothing was touched" in failed(cluster, "state").hint
    assert "run restore" not in cluster.said
    assert "scale statefulset/controller --replicas=1" in cluster.said
    assert not [item for item in cluster.objects if is_stopped(item)]


def test_where_the_restore_fails_nothing_is_started_and_the_same_again_knows_how_many_there_were() -> None:
    cluster = Cluster(restore_state=1)
    assert "`slurmstack restore --what state --at 20261126T020000Z` goes on" in failed(cluster, "state").hint
    assert "scale statefulset/cpu --replicas=4" not in cluster.said
    assert "suspend backup False" not in cluster.said
    with pytest.raises(Failure, match="was not finished") as told:
        refuse_half_restored(cluster.objects)
    assert "`slurmstack restore --what state --at 20261126T020000Z` goes on" in told.value.hint
    caught = failed(cluster, "state")
    assert "goes on" in caught.hint
    assert "nothing was touched" not in caught.hint
    assert "scale statefulset/cpu --replicas=4" not in cluster.said, "what is half restored does not start"
    cluster.ends, cluster.said = {}, []
    assert "scale statefulset/cpu --replicas=4" in restored(cluster, "state")
    assert "run backup" not in cluster.said, "what is half restored is nothing to go back to"
    assert cluster.said[-1] == "suspend backup False"
    refuse_half_restored(cluster.objects)


def test_what_is_left_stopped_is_no_half_restore_and_notes_the_backup_at_slurmctld() -> None:
    cluster = Cluster()
    Restoring(cluster.kubectl, "slurm", ["state", "database"], REPORT).run("20261126T020000Z", copy=False, start=False)
    refuse_half_restored(cluster.objects)
    sets = {each["metadata"]["name"]: each for each in cluster.objects if each["kind"] in {"StatefulSet", "Deployment"}}
    assert {name for name, each in sets.items() if each["spec"].get("replicas") == 0} >= {
        "controller",
        "slurmdbd",
        "cpu",
    }
    assert is_put_back(sets["controller"])
    cluster.ends = {"restore_state": 1}
    failed(cluster, "state", "database", copy=False)
    with pytest.raises(Failure, match="was not finished"):  # the next one is another one
        refuse_half_restored(cluster.objects)
    cluster.ends = {}
    assert "scale statefulset/cpu --replicas=4" in restored(cluster, "state", "database", copy=False)


def test_an_apply_that_starts_what_was_left_stopped_may_be_cut_short_and_takes_the_notes_away_at_its_end() -> None:
    cluster = Cluster()
    Restoring(cluster.kubectl, "slurm", ["state", "database"], REPORT).run("20261126T020000Z", copy=False, start=False)
    sets = {each["metadata"]["name"]: each for each in cluster.objects if each["kind"] in {"StatefulSet", "Deployment"}}
    sets["controller"]["spec"]["replicas"] = 1
    refuse_half_restored(cluster.objects)  # the same apply again goes on
    for each in sets.values():
        each["spec"]["replicas"] = 1
    cluster.said = []
    forget_restore(cluster.kubectl, "slurm", cluster.objects)
    assert "annotate statefulset/controller slurmstack/put-back- slurmstack/replicas-before-restore-" in cluster.said
    assert {line.split()[1] for line in cluster.said} == {
        "statefulset/controller", "statefulset/cpu", "statefulset/gpu", "statefulset/slurmdbd", "deployment/elastic",
    }  # fmt: skip
    left = {note for each in sets.values() for note in each["metadata"].get("annotations", {})}
    assert not {"slurmstack/put-back", "slurmstack/replicas-before-restore"} & left
    sets["cpu"]["spec"]["replicas"] = 0  # as the stack file may say later
    refuse_half_restored(cluster.objects)
    cluster.said = []
    forget_restore(cluster.kubectl, "slurm", cluster.objects)
    assert not cluster.said


def test_a_note_of_an_earlier_restore_counts_for_what_is_stopped_alone() -> None:
    cluster = Cluster()
    (pool,) = [each for each in cluster.objects if (each["kind"], each["metadata"]["name"]) == ("StatefulSet", "cpu")]
    pool["metadata"]["annotations"] = {"slurmstack/replicas-before-restore": "2"}
    refuse_half_restored(cluster.objects)
    assert "scale statefulset/cpu --replicas=4" in restored(cluster, "state")


@pytest.mark.parametrize(
    ("name", "said"), [("backup-29", ["suspend backup True", "suspend backup False"]), ("restore", [])]
)
def test_a_backup_or_another_restore_that_runs_is_not_interfered_with(name: str, said: list[str]) -> None:
    cluster = Cluster()
    cluster.running = [name]
    failed(cluster, "state", says=f"job {name}")
    assert cluster.said == said


@pytest.mark.parametrize("error", [Failure("the API server is away"), KeyboardInterrupt()])
def test_whatever_comes_before_something_is_stopped_the_schedule_is_on_afterwards(error: BaseException) -> None:
    cluster = Cluster()
    cluster.away = [error]
    with pytest.raises(type(error)):
        restored(cluster, "state")
    assert cluster.said == ["suspend backup True", "suspend backup False"]


def test_where_the_schedule_cannot_be_put_on_again_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.running = ["backup-29"]
    patch = cluster._patch

    def away(kind: str, name: str, change: dict[str, Any]) -> None:
        if cluster.said:
            raise Failure("the API server is away")
        patch(kind, name, change)

    monkeypatch.setattr(cluster, "_patch", away)
    assert "backups are suspended" in failed(cluster, "state", says="the API server is away").hint


def test_an_interruption_leaves_the_job_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()

    monkeypatch.setattr("cli.backup.restore.follow_job", Mock(side_effect=KeyboardInterrupt))
    failed(cluster, "state", copy=False, says="the job restore goes on in the cluster")
    assert "scale statefulset/cpu --replicas=4" not in cluster.said


@pytest.mark.parametrize("waited", [True, False], ids=["for the lock", "for an answer"])
def test_who_has_waited_while_another_one_restored_ends_nobody_s_jobs_again(waited: bool) -> None:
    cluster = Cluster()
    lease = {"kind": "Lease", "metadata": {"name": "slurmstack"}, "spec": {}}
    cluster.objects.append(lease)
    cluster.earlier = "1"
    mine = Restoring(cluster.kubectl, "slurm", ["state"], REPORT)
    mine.look_around()
    lease["spec"] = {"holderIdentity": "slurmstack restore of bob@site (pid 7)" if waited else "slurmstack up of bob"}
    cluster.earlier = "1" if waited else "2"
    mine.look_around()
    who = r"slurmstack restore of bob@site \(pid 7\)" if waited else "somebody else"
    with pytest.raises(Refused, match=f"^{who} has restored meanwhile"):
        mine.run("20261126T020000Z", copy=False)
    assert not cluster.said


def test_what_somebody_else_has_left_half_done_is_gone_on_with_and_an_earlier_one_is_no_matter() -> None:
    cluster = Cluster(restore_state=1)
    mine = Restoring(cluster.kubectl, "slurm", ["state"], REPORT)
    mine.look_around()
    failed(cluster, "state", copy=False)
    cluster.ends, cluster.jobs, cluster.earlier = {}, [], "1"
    mine.run("20261126T020000Z", copy=False)
    again = Restoring(cluster.kubectl, "slurm", ["state"], REPORT)
    cluster.jobs = []
    again.look_around()
    again.look_around()
    again.run("20261126T020000Z", copy=False)


@pytest.mark.parametrize(
    ("what", "accounting", "parts"),
    [
        ([], True, ["state", "database", "jail"]),
        (["all"], False, ["state", "jail"]),
        (["jail,state"], True, ["state", "jail"]),
    ],
)
def test_parts_are_put_back_in_their_order(what: list[str], accounting: bool, parts: list[str]) -> None:
    assert parts_of(what, accounting=accounting) == parts


@pytest.mark.parametrize(("what", "told"), [("jial", "--what jial: there is state"), ("database", "no accounting")])
def test_what_is_no_part_is_said(what: str, told: str) -> None:
    with pytest.raises(Failure, match=told):
        parts_of([what], accounting=False)


def test_who_has_waited_while_another_one_left_it_stopped_starts_nothing() -> None:
    """That would be the release which the other one goes back from."""
    cluster = Cluster()
    cluster.earlier = "uid-1"
    waiting = Restoring(cluster.kubectl, "slurm", ["state", "database"], REPORT)
    waiting.look_around()
    Restoring(cluster.kubectl, "slurm", ["state", "database"], REPORT).run("20261126T020000Z", copy=False, start=False)
    said = list(cluster.said)
    with pytest.raises(Refused, match="has restored meanwhile, or tried to; nothing was touched"):
        waiting.run("20261125T020000Z", copy=False)
    assert cluster.said == said


def test_what_another_restore_has_put_back_by_half_is_put_back_as_well() -> None:
    cluster = Cluster(restore_jail=1)
    failed(cluster, "jail", copy=False)
    said = list(cluster.said)
    caught = failed(cluster, "state", "database", copy=False, says="what lives from jail", what=Refused)
    assert "--what state,database,jail" in caught.hint
    assert cluster.said == said, "nothing was started"
    cluster.ends = {}
    assert "scale statefulset/login --replicas=2" in restored(cluster, "state", "database", "jail", copy=False)
    refuse_half_restored(cluster.objects)


def test_who_was_taken_for_dead_starts_nothing_in_the_midst_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()

    def asleep(*_: Any, **__: Any) -> str:
        cluster.running = ["restore"]
        cluster.said = []
        raise KeyboardInterrupt

    monkeypatch.setattr(restore_module, "run_job", asleep)
    restoring = Restoring(cluster.kubectl, "slurm", ["state", "jail"], REPORT)
    with pytest.raises(KeyboardInterrupt):
        restoring.run("20261126T020000Z", copy=True)
    assert cluster.said == []


def test_what_somebody_has_started_meanwhile_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """GitOps, or a colleague: slurmctld has begun with half of what was put back."""
    cluster = Cluster()
    follow = follow_job

    def followed(*arguments: Any) -> str:
        (controller,) = cluster.items("statefulset", "controller")
        controller["spec"]["replicas"] = 1
        return follow(*arguments)

    monkeypatch.setattr(restore_module, "follow_job", followed)
    caught = failed(cluster, "state", copy=False, says="controller started in the midst of this restore")
    assert "`slurmstack restore --what state --at 20261126T020000Z` puts it back anew" in caught.hint
    monkeypatch.undo()
    assert restored(cluster, "state")[-1] == "suspend backup False"
    refuse_half_restored(cluster.objects)


def test_what_a_restore_before_has_left_noted_elsewhere_is_no_start_in_the_midst_of_this_one() -> None:
    cluster = Cluster()
    (login,) = cluster.items("statefulset", "login")
    login["metadata"].setdefault("annotations", {})[REPLICAS_BEFORE] = "2"  # somebody has started it by hand since
    assert restored(cluster, "state", copy=False)[-1] == "suspend backup False"


def test_a_slurmctld_that_ends_again_and_again_is_not_waited_for_for_hours() -> None:
    class Ending(Cluster):
        def items(self, kind: str, *arguments: str) -> list[dict[str, Any]]:
            if kind == "pod" and arguments[-1] == "app.kubernetes.io/component=controller" and self.jobs:
                return [{"status": {"containerStatuses": [{"name": "slurmctld", "restartCount": 5}]}}]
            found = super().items(kind, *arguments)
            return [{**item, "status": {}} for item in found] if arguments[0] == "controller" else found

    cluster = Ending()
    failed(cluster, "state", copy=False, says="slurmctld of controller ends again and again")
    refuse_half_restored(cluster.objects)


def test_who_is_interrupted_at_the_end_is_told_that_there_is_nothing_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workloads, "wait_ready", Mock(side_effect=KeyboardInterrupt))
    cluster = Cluster()
    caught = failed(cluster, "state", copy=False, says="what was stopped starts by itself")
    assert (caught.code, "suspend backup False" in cluster.said) == (INTERRUPTED, True)
    refuse_half_restored(cluster.objects)
