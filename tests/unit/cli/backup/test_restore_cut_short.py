"""A restore that was cut short between its steps, and what comes after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock

import pytest

from cli.backup import restore as restore_module
from cli.backup.restore import Restoring
from cli.backup.workloads import Workloads
from cli.change.in_place import is_put_back
from cli.change.owner import RESTORING, is_stopped, note_of, refuse_half_restored
from cli.errors import INTERRUPTED, Failure, Refused
from tests.unit.cli.backup.cluster import REPORT, Cluster, failed, restored

BACKUP = "20261126T020000Z"
AWAY = Failure("the API server is away")


def stopped(cluster: Cluster) -> set[str]:
    sets = [item for item in cluster.objects if item["kind"] in {"StatefulSet", "Deployment"}]
    return {item["metadata"]["name"] for item in sets if is_stopped(item)}


def left_stopped() -> Cluster:
    cluster = Cluster()
    Restoring(cluster.kubectl, "slurm", ["state", "database"], REPORT).run(BACKUP, copy=False, start=False)
    return cluster


def is_start(name: str, change: dict[str, Any]) -> bool:
    return bool(name == "cpu" and change.get("spec", {}).get("replicas"))


@contextmanager
def cut_short(error: BaseException, when: Callable[[str, dict[str, Any]], object] = is_start) -> Iterator[None]:
    """This comes of the change of a workload that `when` finds: unless said otherwise, of the start of workers."""
    patch = Workloads.patch

    def away(workloads: Workloads, kind: str, name: str, change: Any) -> None:
        if when(name, change):
            raise error
        patch(workloads, kind, name, change)

    with pytest.MonkeyPatch.context() as cut:
        cut.setattr(Workloads, "patch", away)
        yield


def test_what_was_left_stopped_is_not_started_without_what_it_needs() -> None:
    cluster = left_stopped()
    said = list(cluster.said)
    caught = failed(cluster, "state", copy=False, says="what lives from database", what=Refused)
    assert "--what state,database" in caught.hint
    assert cluster.said == said


def test_the_jail_of_what_was_left_stopped_may_be_cut_short_and_the_rest_stays_left() -> None:
    cluster = left_stopped()
    cluster.ends = {"restore_jail": 1}
    failed(cluster, "jail", copy=False)
    with pytest.raises(Failure, match="was not finished"):
        refuse_half_restored(cluster.objects)
    cluster.ends = {}
    restored(cluster, "jail", copy=False)
    assert {"controller", "slurmdbd", "cpu", "login"} <= stopped(cluster)
    (controller,) = cluster.items("statefulset", "controller")
    assert is_put_back(controller)
    refuse_half_restored(cluster.objects)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Failure("the API server is away")])
def test_what_is_cut_short_while_it_starts_is_only_started_by_the_same_again(error: BaseException) -> None:
    """What was accepted meanwhile would be lost by another restore."""
    cluster = Cluster()
    with (
        cut_short(error),
        pytest.raises(Failure, match=r"interrupted while it was started|the API server is away") as caught,
    ):
        restored(cluster, "state", copy=False)
    assert f"`slurmstack restore --what state --at {BACKUP}` only starts what is still stopped" in caught.value.hint
    assert (caught.value.code == INTERRUPTED) == isinstance(error, KeyboardInterrupt)
    assert "cpu" in stopped(cluster)
    cluster.said = []
    said = restored(cluster, "state", copy=False)
    assert "run restore" not in said
    assert "scale statefulset/controller --replicas=0" not in said
    assert not stopped(cluster)
    assert note_of(cluster.objects) is None
    assert "run restore" in restored(cluster, "state", copy=False), "from now on it is another one"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Failure("exceeded quota")])
def test_where_no_job_was_made_all_runs_again(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    cluster = Cluster()
    cluster.earlier = "months ago"

    monkeypatch.setattr(restore_module, "make_job", Mock(side_effect=error))
    caught = failed(cluster, "state", copy=False, says=r"nothing was put back|exceeded quota")
    assert "goes on in the cluster" not in caught.message
    assert caught.hint == "nothing was touched"
    assert not stopped(cluster)
    assert cluster.said[-1] == "suspend backup False"


def test_a_job_that_somebody_deletes_may_have_put_something_back(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()

    def deleted(*_: Any, **__: Any) -> str:
        cluster.jobs = []
        raise Failure("somebody has deleted the job restore")

    monkeypatch.setattr(restore_module, "follow_job", deleted)
    failed(cluster, "state", copy=False, says="somebody has deleted")
    assert "controller" in stopped(cluster)


@pytest.mark.parametrize(("of", "step"), [(Workloads, "stop"), (Restoring, "_save")], ids=["it stops", "it copies"])
def test_a_backup_that_begins_meanwhile_is_seen(monkeypatch: pytest.MonkeyPatch, of: type, step: str) -> None:
    cluster, done = Cluster(), getattr(of, step)

    def slow(self: Any, what: Any) -> None:
        done(self, what)
        cluster.running = ["backup-29"]

    monkeypatch.setattr(of, step, slow)
    failed(cluster, "state", says="the job backup-29 runs")
    assert "run restore" not in cluster.said
    assert not stopped(cluster)


def test_of_two_controllers_the_active_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, asked = Cluster(), list[str]()
    (controller,) = cluster.items("statefulset", "controller")
    controller["spec"]["replicas"] = 2
    items = cluster.items

    def pods(kind: str, *arguments: str) -> list[dict[str, Any]]:
        if "slurmstack/active=yes" in arguments[-1]:
            asked.append(arguments[-1])
            return [{"status": {"conditions": [{"type": "Ready", "status": str(len(asked) > 2)}]}}]
        return items(kind, *arguments)

    monkeypatch.setattr(cluster, "items", pods)
    monkeypatch.setattr("cli.backup.workloads._POLL", 0)
    restored(cluster, "state", copy=False)
    assert len(asked) == 3


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"step": "?", "parts": [], "backup": ""}', '{"step": "putting"}'])
def test_a_note_that_nobody_understands_is_none(text: str) -> None:
    assert note_of([{"metadata": {"annotations": {RESTORING: text}}}]) is None


@pytest.mark.parametrize("last", ["schedule", "note"])
def test_where_all_was_started_the_same_again_says_so_and_does_nothing(last: str) -> None:
    """Weeks later it may be meant as another one."""
    cluster = Cluster()

    def is_last(_: str, change: dict[str, Any]) -> bool:
        annotations = change.get("metadata", {}).get("annotations", {})
        ends = change.get("spec", {}).get("suspend") is False
        return ends if last == "schedule" else annotations.get(RESTORING, "") is None

    with cut_short(AWAY, is_last), pytest.raises(Failure, match="the API server is away"):
        restored(cluster, "state", copy=False)
    assert not stopped(cluster)
    cluster.said = []
    failed(cluster, "state", copy=False, says="was put back before, and all was started", what=Refused)
    assert cluster.said == ["suspend backup False"]
    assert "run restore" in restored(cluster, "state", copy=False)


def test_what_somebody_has_started_by_hand_is_saved_again() -> None:
    cluster = Cluster(restore_state=1)
    failed(cluster, "state")
    (controller,) = cluster.items("statefulset", "controller")
    controller["spec"]["replicas"] = 1
    cluster.ends, cluster.said = {}, []
    said = restored(cluster, "state")
    assert said.index("run backup") < said.index("run restore")


def test_for_a_start_no_backup_is_looked_for() -> None:
    cluster = Cluster()
    restoring = Restoring(cluster.kubectl, "slurm", ["state"], REPORT)
    assert restoring.only_starts(BACKUP) == ""
    with cut_short(AWAY), pytest.raises(Failure, match="the API server is away"):
        restored(cluster, "state", copy=False)
    assert restoring.only_starts(BACKUP) == BACKUP
    assert restoring.only_starts("") == "", "which is the last backup, whatever that is"
    assert Restoring(cluster.kubectl, "slurm", ["jail"], REPORT).only_starts(BACKUP) == ""
    restored(cluster, "state", copy=False)
    assert restoring.only_starts(BACKUP) == ""
    said = list(cluster.said)
    with pytest.raises(Refused, match="was started meanwhile"):
        restoring.run(BACKUP, copy=True, only_start=True)
    assert cluster.said == said, "more was not agreed to"


def test_a_look_that_refuses_ends_the_job_before_all_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes says that a Job has failed a while after its container has."""
    cluster, run = Cluster(restore_look=1), Cluster.run

    def ends(self: Cluster, *arguments: str, **more: Any) -> Any:
        if arguments[:3] == ("create", "--field-manager=slurmstack", "-n"):
            self.running = ["restore"]
        if arguments[:3] == ("delete", "job", "restore"):
            self.running = []
        return run(self, *arguments, **more)

    monkeypatch.setattr(Cluster, "run", ends)
    assert failed(cluster, "state", copy=False).hint == "nothing was touched"
    assert not stopped(cluster)


def test_what_goes_on_with_more_parts_says_so_at_once() -> None:
    cluster = Cluster(restore_state=1)
    failed(cluster, "state", copy=False)
    cluster.ends = {"backup_state": 1}
    caught = failed(cluster, "state", "database", "jail")
    command = f"slurmstack restore --what state --what database --what jail --at {BACKUP}"
    assert f"`{command}` goes on" in caught.hint
    note = note_of(cluster.objects)
    assert note is not None
    assert (note.command, note.half) == (command, ("state",))
    refused = failed(cluster, "state", copy=False, says="what lives from database, jail, too", what=Refused)
    assert refused.hint == f"`{command}` goes on with it"
