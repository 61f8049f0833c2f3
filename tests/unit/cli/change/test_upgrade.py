"""Another release of Slurm with kubectl: slurmdbd first, and nothing else before it is up."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache, partial
from typing import Any, get_args

import pytest

from cli.change import apply as upgrade
from cli.change.apply import failed_upgrade_hint, hinting, image_trial, is_upgrade, save_first, upgraded_first
from cli.change.plan import Plan, key
from cli.errors import Failure
from cli.kubectl.client import component_of
from cli.program.recording import KeptValues, Manifest, manifests
from config.sections.services import ImageRole
from local.report import PlainReport
from tests import stacks
from tests.fakes.kubectl import FakeKubectl
from tests.recordings import record
from tests.stacks import with_change

SAVED = "20261127T101500Z"


@cache
def objects(version: str, digit: str = "", stack: str = "dev") -> list[Manifest]:
    """The objects of a stack with this release; with a digit its images are named by digests of it."""
    sections = with_change(getattr(stacks, stack)(), "slurm.version", version)
    if stack == "existing":
        sections = with_change(sections, "accounting.enabled", value=False)
    if digit:
        digests = dict.fromkeys(get_args(ImageRole), f"sha256:{digit * 64}")
        sections = {**sections, "images": {"registry": "registry.example/slurmstack", "digests": digests}}
    return manifests(record(sections, stack="dev"))


def planned(new: list[Manifest], old: list[Manifest]) -> Plan:
    """A plan for a cluster whose daemons are all ready."""
    live = {key(item.document): copy.deepcopy(item.document) for item in old}
    for document in live.values():
        if document["kind"] == "StatefulSet":
            document["status"] = {"readyReplicas": document["spec"]["replicas"]}
    return Plan(
        namespace="slurm", objects=tuple(new), kept=KeptValues({}), live=live, inside=live, left=(), effects=()
    )  # fmt: skip


def other_images(change: Callable[[str], str]) -> list[Manifest]:
    """The objects of 24.11, with other names of images."""
    found = copy.deepcopy(objects("24.11"))
    for item in found:
        if item.kind == "StatefulSet":
            for container in item.document["spec"]["template"]["spec"]["containers"]:
                container["image"] = change(container["image"])
    return found


def begun() -> Plan:
    """An upgrade that was cut short when slurmdbd had its new release."""
    found = planned(objects("26.05"), objects("24.11"))
    daemon = found.wanted["StatefulSet", "slurmdbd"]
    found.live["StatefulSet", "slurmdbd"].update(spec=copy.deepcopy(daemon["spec"]))
    return found


def stopped() -> Plan:
    """What a restore has left is the backup."""
    found = planned(objects("26.05"), objects("24.11"))
    found.live["StatefulSet", "controller"]["spec"]["replicas"] = 0
    return found


REBUILT, MINE, PINNED = (
    partial(other_images, change)
    for change in (
        lambda image: image[:-12] + "0" * 12,
        lambda image: f"{image.partition(':')[0]}:mine",
        lambda image: f"{image.partition(':')[0]}:@sha256:{'0' * 64}",
    )
)

PLANS: dict[str, tuple[Callable[[], Plan], bool, bool]] = {
    "another release": (lambda: planned(objects("26.05"), objects("24.11")), True, True),
    "one that failed or converts yet": (begun, True, True),
    "a slurmctld that is stopped": (stopped, True, False),
    "a new cluster": (lambda: planned(objects("26.05"), []), False, False),
    "a tag that tells no release": (lambda: planned(objects("24.11"), MINE()), True, True),
    "a digest that tells none": (lambda: planned(objects("24.11"), PINNED()), True, True),
    "no accounting": (lambda: planned(objects("26.05", "", "existing"), objects("24.11", "", "existing")), False, True),
    "by digest": (lambda: planned(objects("26.05", "2"), objects("24.11", "1")), True, True),
}
"""A plan, whether slurmdbd is brought to its release first, and whether a slurmctld that runs gets another one."""


@pytest.mark.parametrize("name", PLANS)
def test_slurmdbd_and_what_it_reads_come_first_where_a_release_changes(name: str) -> None:
    plan, goes_first, is_another = PLANS[name]
    found = plan()
    steps = [{(item.kind, item.name.partition("-")[0]) for item in step} for step in upgraded_first(found)]
    daemon = {("StatefulSet", "slurmdbd"), ("ConfigMap", "slurmdbd")}
    wanted = [daemon, {("StatefulSet", "database")}] if goes_first else []
    assert steps == wanted, "the database is not away while a new slurmctld starts"
    assert is_upgrade(found) == is_another


def test_a_database_that_is_away_comes_before_slurmdbd_which_waits_for_it() -> None:
    """An earlier run has ended there. No slurmctld of the new release starts meanwhile."""
    found = begun()
    found.live["StatefulSet", "database"]["status"] = {}
    assert [component_of(step[0].document) for step in upgraded_first(found)] == ["database", "slurmdbd"]


def test_queue_and_records_are_saved_before_another_release(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def ran(_kubectl: Any, _namespace: str, template: str, _report: Any, **how: Any) -> str:
        asked.append((template, how))
        return f"backup 20261127T101500Z: state, database\nstate is saved in backup {SAVED} (1 s)\n"

    monkeypatch.setattr(upgrade, "run_job", ran)
    assert save_first(FakeKubectl(), planned(objects("26.05"), objects("24.11")), PlainReport()) == SAVED
    ((template, how),) = asked
    assert template == "backup"
    assert how["env"] == {"KIND": "before-upgrade", "PARTS": "state database"}
    assert how["without"] == {"backup-jail"}, "the jail may take hours, and no upgrade touches it"


def test_what_slurmdbd_converts_already_is_not_saved_as_that_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "run_job", None)
    assert save_first(FakeKubectl(), begun(), PlainReport()) == ""
    assert "`slurmstack backup list` has the ID" in failed_upgrade_hint("", backups=True)


def test_an_upgrade_that_fails_names_its_backup_and_the_commands_that_lead_back() -> None:
    told = failed_upgrade_hint(SAVED, backups=True)
    with pytest.raises(Failure, match="slurmctld ends") as caught, hinting(told):
        raise Failure("slurmctld ends", hint="`slurmstack status` shows the pods")
    assert caught.value.hint == f"`slurmstack status` shows the pods; {told}"
    assert "there is no backup" in failed_upgrade_hint("", backups=False)
    assert f"`slurmstack restore --what state --what database --leave-stopped --at {SAVED}`" in told
    with pytest.raises(Failure) as caught, hinting(""):
        raise Failure("it fails", hint="as always")
    assert caught.value.hint == "as always"


def test_images_are_tried_where_slurmctld_runs_that_may_get_them_and_once() -> None:
    plan = planned(objects("24.11"), REBUILT())
    (trial,) = image_trial(plan)
    plan.live[trial.key]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert image_trial(plan) == []
    assert image_trial(stopped()) == []
    down = planned(objects("26.05"), objects("24.11"))
    down.live["StatefulSet", "database"]["status"] = {}
    assert image_trial(down) == []
    assert image_trial(planned(objects("24.11"), [])) == [], "nothing is lost where there is nothing"
