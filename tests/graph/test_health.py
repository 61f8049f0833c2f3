"""The watcher and the checks' settings: narrow rights, and changes that restart nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.program.recording import Recording
from slurm.rights import INTO_JAIL
from tests import stacks
from tests.graph import objects
from tests.graph.objects import COMPONENT, containers, differing, inputs, mounts, named, pod, templates, volumes

PODS = "slurm-health-pods"


def recorded(**health: Any) -> Recording:
    return objects.recorded(health=health)


def rights(recording: Recording) -> dict[str, list[str]]:
    """Verbs by kind, in the namespace and beyond."""
    roles = [name for name in named(recording, "slurm-health") if name.endswith("-role")]
    rules = [rule for name in roles for rule in inputs(recording, name)["rules"]]
    return {kind: rule["verbs"] for rule in rules for kind in rule["resources"]}


WATCHES = {"pods": ["list", "watch"], "nodes": ["list", "watch"]}
CHANGES_NODES = {**WATCHES, "nodes": ["list", "watch", "get", "patch"]}


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


def test_there_is_never_more_than_one_watcher_beside_the_controller_and_not_on_a_lost_machine() -> None:
    recording = recorded()
    spec = inputs(recording, PODS)["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    watcher = spec["template"]["spec"]
    assert {(each["key"], each.get("tolerationSeconds")) for each in watcher["tolerations"]} >= {
        ("node.kubernetes.io/unreachable", 5),
        ("node.kubernetes.io/not-ready", 5),
    }
    (wish,) = watcher["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert wish["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    wanted = wish["podAffinityTerm"]["labelSelector"]["matchLabels"].items()
    chosen = [one["metadata"]["labels"] for one in templates(recording).values()]
    assert [labels[COMPONENT] for labels in chosen if wanted <= labels.items()] == ["controller"]


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


def test_workers_have_the_settings_and_those_with_gpus_may_read_the_kernel_s_log() -> None:
    recording = recorded()
    for pool, more in (("gpu", {"SYSLOG"}), ("cpu", set())):
        spec = pod(recording, f"slurm-pool-{pool}-pods")
        assert volumes(spec)["health"]["configMap"] == {"name": "health-settings"}
        slurmd = containers(spec)["slurmd"]
        assert mounts(slurmd)["/config/health"] == {"name": "health", "mountPath": "/config/health", "readOnly": True}
        assert {*slurmd["securityContext"]["capabilities"]["add"]} - {*INTO_JAIL} == more


@pytest.mark.parametrize(
    ("sections", "pools"), [(stacks.nebius(), {"default": {"infiniband": True}}), (stacks.existing(), {})]
)
def test_pools_with_rdma_devices_should_have_infiniband(sections: dict[str, Any], pools: dict[str, Any]) -> None:
    settings = inputs(objects.recorded(sections), "slurm-health-settings")["data"]["settings.json"]
    assert json.loads(settings)["pools"] == pools


def test_turned_off_there_is_nothing_of_it() -> None:
    recording = recorded(enabled=False)
    assert not named(recording, "slurm-health")
    spec = pod(recording, "slurm-pool-gpu-pods")
    assert "health" not in volumes(spec)
    assert "SYSLOG" not in containers(spec)["slurmd"]["securityContext"]["capabilities"]["add"]


def test_tests_of_nodes_run_beside_the_watcher_and_start_anew_with_their_settings() -> None:
    without, with_tests, fewer = (
        containers(pod(recorded(tests=tests), PODS))
        for tests in ({}, {"enabled": True}, {"enabled": True, "run": ["cpu-speed"]})
    )
    assert without.keys() == {"munged", "health-watch"}
    assert mounts(with_tests["health-tests"])["/config/health"]["readOnly"]
    assert fewer["health-tests"]["env"] != with_tests["health-tests"]["env"]
