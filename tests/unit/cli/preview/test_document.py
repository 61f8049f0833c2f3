"""The document behind every preview: where it comes from, its outcome, and the exit status that a script acts on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.change import plan
from cli.change.change import Change, PropertyChange, of_object
from cli.change.effects import Effect
from cli.change.jobs import JobsTouched
from cli.errors import CHANGES, FAILED, REFUSED, USAGE
from cli.preview import document
from cli.preview.document import NOT_COMPARED, Preview, exit_status, notes_of, summarize
from cli.preview.policy import PolicyPlan
from cli.preview.text import print_effects
from cli.stack import open_stack
from config import load_config
from tests import stacks
from tests.fakes.kubectl import FakeKubectl, listed, thing
from tests.stacks import with_change
from tests.unit.cli.command_line import stack_file
from tests.unit.cli.nebius_stack import NEBIUS

CHANGE = Change(action="update", resource=of_object(thing("Service", "login")))


def preview(**fields: Any) -> Preview:
    return Preview(stack="prod", against="cluster", summary=summarize(load_config(stacks.existing())), **fields)


def effect(refused: str) -> Effect:
    return Effect(action="delete", kind="file system", name="jail", because=(), cost="files", refused=refused)


@pytest.mark.parametrize(
    ("fields", "outcome", "plain", "detailed"),
    [
        ({}, "none", 0, 0),
        ({"notes": ("a pool leaves",)}, "none", 0, 0),
        ({"changes": (CHANGE,)}, "changes", 0, CHANGES),
        ({"changes": (CHANGE,), "effects": (effect(""),)}, "changes", 0, CHANGES),
        ({"changes": (CHANGE,), "effects": (effect("no"),)}, "refused", REFUSED, REFUSED),
        ({"policy": PolicyPlan(changes=("+ qos a",), notes=())}, "changes", 0, CHANGES),
        ({"policy": PolicyPlan(changes=("+ qos a",), notes=(), compared=False)}, "none", 0, 0),
    ],
)
def test_the_outcome_decides_the_exit_status(fields: dict[str, Any], outcome: str, plain: int, detailed: int) -> None:
    shown = preview(**fields)
    assert shown.outcome == outcome
    assert exit_status(shown, detailed=False) == plain
    assert exit_status(shown, detailed=True) == detailed


def test_no_exit_status_means_two_things() -> None:
    assert len({0, FAILED, USAGE, REFUSED, CHANGES, 130}) == 6


def test_a_script_reads_the_outcome_and_each_refusal_with_its_way_out() -> None:
    data = json.loads(json.dumps(preview(effects=(effect("set it back"),)).as_data()))
    assert (data["outcome"], data["refused"]) == ("refused", 1)
    assert data["refusals"] == ["file system jail: set it back"]
    assert data["summary"]["nodes"]["total"] == 6


LEAVES = Effect(action="delete", kind="StatefulSet", name="a", because=(), cost="pool 'a' leaves", refused="")
SHRINKS = Effect(action="update", kind="PersistentVolumeClaim", name="jail", because=(), cost="", refused="too small")


def answering(monkeypatch: pytest.MonkeyPatch, effects: tuple[Effect, ...], found: list[Change] | None) -> None:
    planned = SimpleNamespace(effects=effects, exists=False)
    for name, answer in (("plan", planned), ("jobs_of_plan", JobsTouched())):
        monkeypatch.setattr(document, name, lambda *_, answer=answer, **__: answer)
    if found is not None:
        monkeypatch.setattr(plan, "preview", lambda *_: found)


def of_cluster(directory: Path) -> Preview:
    kubectl = FakeKubectl(answers=[({"get", "pod"}, listed(), "")])
    return document.of_cluster(kubectl, open_stack(stack_file(directory, stacks.existing())))


def test_what_can_never_change_is_refused_unless_it_is_a_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = [
        Change(action="replace", resource=of_object(thing(kind, "x"))) for kind in ("Job", "PersistentVolumeClaim")
    ]
    answering(monkeypatch, (LEAVES,), found)
    shown = of_cluster(tmp_path)
    (refused,) = shown.refused
    assert refused.startswith("PersistentVolumeClaim x: a field differs that can never change")
    assert shown.effects[0] == LEAVES


def test_where_anything_is_refused_the_api_server_is_not_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answering(monkeypatch, (LEAVES, SHRINKS), None)
    shown = of_cluster(tmp_path)
    assert shown.refused == ("PersistentVolumeClaim jail: too small",)
    assert (shown.outcome, shown.notes) == ("refused", (NOT_COMPARED,))


SPARE = {"size": 1, "resources": {"cpus": 1, "memory": "2Gi"}}
BOB = {"uid": 10002}


def notes(*changes: tuple[str, Any]) -> tuple[str, ...]:
    sections = stacks.existing()
    for path, value in changes:
        sections = with_change(sections, path, value)
    return notes_of(load_config(sections))


def test_a_pool_that_no_partition_has_is_named() -> None:
    pools = ("partitions.every", {"pools": list(stacks.existing()["worker_nodes"])})
    assert notes(pools) == ()
    assert notes(pools, ("worker_nodes.spare", SPARE)) == (
        "worker_nodes.spare is in no partition: no job can run there",
    )
    without = {name: value for name, value in stacks.existing().items() if name != "partitions"}
    assert notes_of(load_config(with_change(without, "worker_nodes.spare", SPARE))) == ()


@pytest.mark.parametrize(
    ("enforce", "is_told"), [(None, True), (["limits"], True), (["safe"], True), (["nosteps"], False)]
)
def test_a_user_whose_jobs_slurm_refuses_is_named(enforce: list[str] | None, is_told: bool) -> None:
    told = "users.bob has no accounts: Slurm refuses every job of theirs"
    changes = [("users", {"bob": BOB}), ("accounts", {"ml": {}})]
    assert (told in notes(*changes, ("accounting.enforce", enforce))) == is_told
    assert told not in notes(("users", {"bob": {**BOB, "accounts": ["ml"]}}), ("accounts", {"ml": {}}))
    assert told not in notes(("users", {"bob": BOB}), ("accounts", {}))


def summary_of(sections: dict[str, Any]) -> list[str]:
    return summarize(load_config(sections)).lines()


def test_a_stack_that_makes_its_machines_shows_all_of_them_and_what_they_hold() -> None:
    sections = with_change(NEBIUS, "mounts", {"data": {"path": "/data", "size": "1536Gi"}})
    sections["jail"]["filesystem"] = {"id": "computefilesystem-e00a"}
    *machines, volumes = summary_of(sections)
    assert machines == [
        "5 nodes, 16 GPUs, 296 vCPUs",
        "  system      1 node (up to 3) cpu-d3 16vcpu-64gb: 16 vCPUs",
        "  controller  1 node cpu-d3 8vcpu-32gb: 8 vCPUs",
        "  login       1 node (up to 2) cpu-d3 16vcpu-64gb: 16 vCPUs",
        "  default     2 nodes gpu-h100-sxm 8gpu-128vcpu-1600gb: 16 GPUs, 256 vCPUs",
        "GPU clusters: fabric-6",
    ]
    assert volumes == (
        "file systems: jail 2Ti NETWORK_SSD (existing, computefilesystem-e00a), controller 10Gi disk, "
        "accounting.database 10Gi disk, mounts.data 1536Gi NETWORK_SSD"
    )


def test_a_stack_on_a_cluster_that_is_there_needs_two_lines() -> None:
    assert summary_of(stacks.existing()) == [
        "6 nodes (4 cpu, 2 gpu, 0 plain), 320 CPUs, 16 GPUs",
        "volumes: jail 1Ti, controller 10Gi, accounting.database 10Gi",
    ]
    nodes, volumes = summary_of(stacks.dev())
    assert nodes == "2 nodes (2 default), 4 CPUs"
    assert volumes.startswith("volumes: jail ")


def test_scripts_get_the_same_numbers_and_the_effects() -> None:
    effect = Effect(
        action="replace",
        kind="file system",
        name="slurm-jail",
        because=(PropertyChange(path="type", old="NETWORK_SSD", new="WEKA"),),
        cost="lost",
        refused="no",
    )
    data = summarize(load_config(NEBIUS)).as_data([effect])
    assert data["nodes"]["total"] == 5
    assert data["gpus"] == {"total": 16, "pools": {"default": 16}}
    assert data["vcpus"] == 296
    assert data["filesystems"][0] == {"name": "jail", "size_gib": 2048, "kind": "NETWORK_SSD", "existing": ""}
    assert data["effects"][0]["because"] == ({"path": "type", "old": "NETWORK_SSD", "new": "WEKA"},)
    assert data["effects"][0]["refused"] == "no"


def test_an_effect_is_printed_with_its_reason_its_cost_and_the_way_out(capsys: Any) -> None:
    because = (PropertyChange(path="type", old=None, new="WEKA"),)
    print_effects(
        [Effect(action="delete", kind="bucket", name="b[old]", because=because, cost="data are lost", refused="set x")]
    )
    printed = capsys.readouterr().out
    assert [line.strip() for line in printed.splitlines()] == [
        "- delete  bucket b[old]",
        "type: (absent) => WEKA",
        "data are lost",
        "refused: set x",
    ]
