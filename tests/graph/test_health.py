"""The watcher and the checks' settings: narrow rights, and changes that restart nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from tests.graph import objects
from tests.graph.objects import differing, inputs, named, pod, volumes

PODS = "slurm-health-pods"


def recorded(**health: Any) -> Recording:
    return objects.recorded(health=health)


def rights(recording: Recording) -> dict[str, list[str]]:
    """Verbs by kind, in the namespace and beyond."""
    roles = [name for name in named(recording, "slurm-health") if name.endswith("-role")]
    rules = [rule for name in roles for rule in inputs(recording, name)["rules"]]
    return {kind: rule["verbs"] for rule in rules for kind in rule["resources"]}


WATCHES = {"pods": ["list", "watch", "delete"], "nodes": ["get", "list", "watch"]}
CHANGES_NODES = {**WATCHES, "nodes": ["get", "list", "watch", "patch"]}


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        ({}, WATCHES),
        ({"release": "cordon"}, CHANGES_NODES),
        (
            {"release": "cordon", "release_condition": "HardwareIssuesSuspected"},
            {**CHANGES_NODES, "nodes/status": ["patch"]},
        ),
        ({"follow": False}, {}),
    ],
)
def test_the_watcher_has_the_rights_that_following_and_releasing_machines_take(
    machines: dict[str, Any], expected: dict[str, list[str]]
) -> None:
    recording = recorded(machines=machines)
    assert rights(recording) == expected
    for binding in (name for name in named(recording, "slurm-health") if name.endswith("-binding")):
        (subject,) = inputs(recording, binding)["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": "health-watch", "namespace": "slurm"}
    assert any("projected" in volume for volume in pod(recording, PODS)["volumes"]) is bool(expected)


@pytest.mark.parametrize(
    ("health", "changed"),
    [
        ({"max_drained": 3}, {PODS}),
        ({"machines": {"requeue_after": 60}}, {PODS}),
        ({"report_only": ["disks"]}, {PODS, "slurm-health-settings"}),
        ({"disabled": ["dns"]}, {PODS, "slurm-health-settings"}),
        ({"thresholds": {"disks": {"fail_percent": 97}}}, {"slurm-health-settings"}),
    ],
)
def test_a_change_of_what_follows_restarts_the_watcher_alone_and_one_of_thresholds_nothing(
    health: dict[str, Any], changed: set[str]
) -> None:
    assert differing(recorded(), recorded(**health)) == changed


def test_turned_off_there_is_nothing_of_it() -> None:
    recording = recorded(enabled=False)
    assert not named(recording, "slurm-health")
    spec = pod(recording, "slurm-pool-gpu-pods")
    assert "health" not in volumes(spec)
