"""Another release of Slurm with kubectl: slurmdbd first, and nothing else before it is up."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import pytest

from cli.change import apply as upgrade
from cli.change.apply import hinting, is_upgrade, save_first, send, upgraded_first, way_back
from cli.change.diff import key
from cli.change.plan import PART_OF, Plan, set_id
from cli.errors import Failure
from cli.program.generated import KeptValues
from cli.program.manifests import Manifest, manifests
from config.sections.services import ImageRole
from local.report import PlainReport
from tests import stacks
from tests.fakes.kubectl import FakeKubectl
from tests.recordings import record
from tests.stacks import with_change

SAVED = "20261127T101500Z"


def objects(version: str, **images: Any) -> list[Manifest]:
    sections = with_change(stacks.dev(), "slurm.version", version)
    return manifests(record({**sections, "images": images} if images else sections, stack="dev"))


def planned(new: list[Manifest], old: list[Manifest]) -> Plan:
    there = {key(item.document): copy.deepcopy(dict(item.document)) for item in old}
    return Plan(
        namespace="slurm", objects=tuple(new), kept=KeptValues({}), live=there, inside={}, outside=(), effects=()
    )  # fmt: skip


def other_images(items: list[Manifest], change: Callable[[str], str]) -> list[Manifest]:
    """The same objects, with other names of images."""
    found = copy.deepcopy(items)
    for item in found:
        if item.kind == "StatefulSet":
            for container in item.document["spec"]["template"]["spec"]["containers"]:
                container["image"] = change(container["image"])
    return found


def test_slurmdbd_and_what_it_reads_come_first_and_stay_members_of_the_set() -> None:
    first = upgraded_first(planned(objects("26.05"), objects("24.11")))
    assert {(item.kind, item.name.partition("-")[0]) for item in first} == {
        ("StatefulSet", "slurmdbd"),
        ("ConfigMap", "slurmdbd"),
    }
    for item in first:
        assert item.document["metadata"]["labels"][PART_OF] == set_id("slurm")
    (daemon,) = [item for item in first if item.kind == "StatefulSet"]
    assert ":26.05-" in daemon.document["spec"]["template"]["spec"]["containers"][0]["image"]


def test_the_same_release_or_a_new_cluster_needs_no_order() -> None:
    stack = objects("24.11")
    assert upgraded_first(planned(stack, stack)) == []
    assert upgraded_first(planned(stack, [])) == []
    rebuilt = other_images(stack, lambda image: image[:-12] + "0" * 12)
    assert upgraded_first(planned(stack, rebuilt)) == []


@pytest.mark.parametrize("tag", ["mine", "@sha256:" + "0" * 64])
def test_of_images_with_names_of_their_own_nobody_can_tell_the_release(tag: str) -> None:
    stack = objects("24.11")
    renamed = other_images(stack, lambda image: f"{image.partition(':')[0]}:{tag}")
    assert upgraded_first(planned(stack, renamed))
    assert upgraded_first(planned(renamed, renamed)) == []


def test_without_accounting_there_is_nothing_to_wait_for() -> None:
    def stack(version: str) -> list[Manifest]:
        sections = with_change(stacks.existing(), "accounting.enabled", value=False)
        return manifests(record(with_change(sections, "slurm.version", version), stack="prod"))

    assert upgraded_first(planned(stack("26.05"), stack("24.11"))) == []


def test_an_upgrade_is_another_release_of_a_slurmctld_that_runs() -> None:
    old, new = objects("24.11"), objects("26.05")
    assert is_upgrade(planned(new, old))
    assert not is_upgrade(planned(old, old))
    assert not is_upgrade(planned(new, []))
    stopped = planned(new, old)
    stopped.live["StatefulSet", "controller"]["spec"]["replicas"] = 0
    assert not is_upgrade(stopped), "what a restore has left is the backup"


def test_an_upgrade_of_images_by_digest_is_one_too_and_another_build_of_a_release_is_none() -> None:
    def pinned(version: str, digit: str) -> list[Manifest]:
        digests = dict.fromkeys(get_args(ImageRole), f"sha256:{digit * 64}")
        return objects(version, registry="registry.example/slurmstack", digests=digests)

    assert is_upgrade(planned(pinned("26.05", "2"), pinned("24.11", "1")))
    assert not is_upgrade(planned(pinned("24.11", "2"), pinned("24.11", "1")))
    assert not is_upgrade(planned(pinned("24.11", "1"), objects("24.11")))


def backed_up(new: str, old: str) -> Plan:
    found = planned(objects(new), objects(old))
    return replace(found, inside=found.live)


def test_queue_and_records_are_saved_before_another_release(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def ran(_kubectl: Any, _namespace: str, template: str, _report: Any, **how: Any) -> str:
        asked.append((template, how))
        return f"backup 20261127T101500Z: state, database\nstate is saved in backup {SAVED} (1 s)\n"

    monkeypatch.setattr(upgrade, "run_job", ran)
    assert save_first(Recording(), backed_up("26.05", "24.11"), PlainReport()) == SAVED
    ((template, how),) = asked
    assert template == "backup"
    assert how["env"] == {"KIND": "before-upgrade", "PARTS": "state database"}
    assert how["only"] == {"backup-state", "backup-database"}, "the jail may take hours, and no upgrade touches it"


def test_one_that_failed_or_converts_yet_is_waited_for_by_the_next_run_too() -> None:
    begun = planned(objects("26.05"), objects("24.11"))
    first = {(item.kind, item.name) for item in upgraded_first(begun)}
    daemon = next(item for item in objects("26.05") if item.name == "slurmdbd" and item.kind == "StatefulSet")
    begun.live["StatefulSet", "slurmdbd"].update(spec=daemon.document["spec"])
    assert {(item.kind, item.name) for item in upgraded_first(begun)} == first
    done = planned(objects("26.05"), objects("26.05"))
    assert upgraded_first(done) == []


def test_what_slurmdbd_converts_already_is_not_saved_as_that_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "run_job", None)
    begun = backed_up("26.05", "24.11")
    daemon = next(item for item in objects("26.05") if item.name == "slurmdbd" and item.kind == "StatefulSet")
    begun.live["StatefulSet", "slurmdbd"].update(spec=daemon.document["spec"])
    assert is_upgrade(begun)
    assert save_first(Recording(), begun, PlainReport()) == ""
    assert "`slurmstack backup list` has the ID" in way_back("", backups=True)


def test_a_backup_that_fails_stops_the_upgrade_and_says_how_to_go_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def failed(*_: Any, **__: Any) -> str:
        raise Failure("backup-state: the S3 store cannot be reached", hint="look at the network")

    monkeypatch.setattr(upgrade, "run_job", failed)
    with pytest.raises(Failure, match="nothing was touched: backup-state: the S3 store") as caught:
        save_first(Recording(), backed_up("26.05", "24.11"), PlainReport())
    assert caught.value.hint == "correct that, or go on without one: --no-backup. look at the network"


def test_an_upgrade_that_fails_names_its_backup_and_the_commands_that_lead_back() -> None:
    told = way_back(SAVED, backups=True)
    with pytest.raises(Failure, match="slurmctld ends") as caught, hinting(told):
        raise Failure("slurmctld ends", hint="`slurmstack status` shows the pods")
    assert caught.value.hint == f"`slurmstack status` shows the pods; {told}"
    assert "there is no backup" in way_back("", backups=False)
    assert f"`slurmstack restore --what state --what database --leave-stopped --at {SAVED}`" in told
    with pytest.raises(Failure) as caught, hinting(""):
        raise Failure("it fails", hint="as always")
    assert caught.value.hint == "as always"


@dataclass(frozen=True, kw_only=True)
class Recording(FakeKubectl):
    """Takes all that it is sent."""

    sent: list[tuple[tuple[str, ...], str]] = field(default_factory=list)

    def run(self, *arguments: str, stdin: str | None = None, **_: Any) -> subprocess.CompletedProcess[str]:
        self.sent.append((arguments, stdin or ""))
        return subprocess.CompletedProcess(arguments, 0, "", "")


def test_nothing_is_pruned_when_it_is_sent() -> None:
    kubectl = Recording()
    first = upgraded_first(planned(objects("26.05"), objects("24.11")))
    send(kubectl, first)
    ((arguments, stdin),) = kubectl.sent
    assert arguments[0] == "apply"
    assert "--prune" not in arguments
    assert {item["metadata"]["name"] for item in json.loads(stdin)["items"]} == {item.name for item in first}
