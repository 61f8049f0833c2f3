"""The watcher and the checks' settings: narrow rights, and changes that restart nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cli.program.recording import Recording
from cli.program.values import reveal
from slurm.rights import INTO_JAIL
from tests import stacks
from tests.recordings import record
from tests.stacks import with_change


def recorded(**health: Any) -> Recording:
    return record(with_change(stacks.existing(), "health", health), stack="prod")


def named(recording: Recording, name: str) -> dict[str, Any]:
    (found,) = [item for item in recording if item.name == name]
    return dict(reveal(found.inputs))


def rules(recording: Recording, name: str) -> list[tuple[list[str], list[str]]]:
    return [(rule["resources"], rule["verbs"]) for rule in named(recording, name)["rules"]]


def differing(before: Recording, after: Recording) -> set[str]:
    """Names of resources whose inputs differ, or that only one of them has."""

    def inputs(recording: Recording) -> dict[str, str]:
        return {item.name: json.dumps(reveal(item.inputs), sort_keys=True, default=str) for item in recording}

    one, two = inputs(before), inputs(after)
    return {name for name in one.keys() | two.keys() if one.get(name) != two.get(name)}


def test_by_default_the_watcher_may_read_and_write_events_only() -> None:
    recording = recorded()
    assert rules(recording, "slurm-health-role") == [(["pods"], ["list", "watch"]), (["events"], ["create"])]
    assert rules(recording, "slurm-health-cluster-role") == [(["nodes"], ["list", "watch"])]


def test_machines_are_released_with_rights_for_that_alone() -> None:
    recording = recorded(machines={"release": "cordon"})
    assert rules(recording, "slurm-health-cluster-role") == [(["nodes"], ["list", "watch", "get", "patch"])]
    assert (["pods/eviction"], ["create"]) not in rules(recording, "slurm-health-role")
    recording = recorded(machines={"release": "evict", "release_condition": "HardwareIssuesSuspected"})
    assert (["nodes/status"], ["patch"]) in rules(recording, "slurm-health-cluster-role")
    assert (["pods/eviction"], ["create"]) in rules(recording, "slurm-health-role")


def test_a_watcher_that_does_not_follow_machines_has_no_right_at_all() -> None:
    recording = recorded(machines={"follow": False})
    assert not [item.name for item in recording if item.name.startswith("slurm-health") and "role" in item.name]
    spec = named(recording, "slurm-health-pods")["spec"]["template"]["spec"]
    assert not [volume for volume in spec["volumes"] if "projected" in volume]


def test_its_rights_go_to_its_own_account() -> None:
    recording = recorded()
    for name in ("slurm-health-role-binding", "slurm-health-cluster-role-binding"):
        (subject,) = named(recording, name)["subjects"]
        assert subject == {"kind": "ServiceAccount", "name": "health-watch", "namespace": "slurm"}


def test_there_is_never_more_than_one_watcher() -> None:
    spec = named(recorded(), "slurm-health-pods")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_watcher_does_not_stay_on_a_lost_machine() -> None:
    tolerations = named(recorded(), "slurm-health-pods")["spec"]["template"]["spec"]["tolerations"]
    assert {(each["key"], each.get("tolerationSeconds")) for each in tolerations} >= {
        ("node.kubernetes.io/unreachable", 5),
        ("node.kubernetes.io/not-ready", 5),
    }


def test_the_watcher_would_rather_be_where_the_controller_is() -> None:
    recording = recorded()
    pod = named(recording, "slurm-health-pods")["spec"]["template"]
    (wish,) = pod["spec"]["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert wish["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    wanted = wish["podAffinityTerm"]["labelSelector"]["matchLabels"]
    pods = {
        item.name: reveal(item.inputs)["spec"]["template"]
        for item in recording
        if item.type.startswith("kubernetes:apps")
    }
    chosen = [name for name, pod in pods.items() if wanted.items() <= pod["metadata"]["labels"].items()]
    assert chosen == ["slurm-controller-pods"]


@pytest.mark.parametrize(
    ("health", "changed"),
    [
        ({"max_drained": 3}, {"slurm-health-pods"}),
        ({"machines": {"requeue_after": 60}}, {"slurm-health-pods"}),
        ({"report_only": ["disks"]}, {"slurm-health-pods", "slurm-health-settings"}),
        ({"disabled": ["dns"]}, {"slurm-health-pods", "slurm-health-settings"}),
    ],
    ids=["max_drained", "requeue_after", "report_only", "disabled"],
)
def test_a_change_of_what_follows_restarts_the_watcher_alone(health: dict[str, Any], changed: set[str]) -> None:
    assert differing(recorded(), recorded(**health)) == changed


def test_a_change_of_thresholds_restarts_nothing() -> None:
    assert differing(recorded(), recorded(thresholds={"disks": {"fail_percent": 97}})) == {"slurm-health-settings"}


def test_workers_have_the_settings_and_those_with_gpus_may_read_the_kernel_s_log() -> None:
    recording = recorded()
    for pool, more in (("gpu", {"SYSLOG"}), ("cpu", set())):
        spec = named(recording, f"slurm-pool-{pool}-pods")["spec"]["template"]["spec"]
        assert {"name": "health", "configMap": {"name": "health-settings"}} in spec["volumes"]
        (slurmd,) = [container for container in spec["containers"] if container["name"] == "slurmd"]
        assert {"name": "health", "mountPath": "/config/health", "readOnly": True} in slurmd["volumeMounts"]
        assert {*slurmd["securityContext"]["capabilities"]["add"]} - {*INTO_JAIL} == more


def test_pools_with_rdma_devices_should_have_infiniband() -> None:
    for sections, pools in ((stacks.nebius(), {"default": {"infiniband": True}}), (stacks.existing(), {})):
        settings = named(record(sections, stack="prod"), "slurm-health-settings")["data"]["settings.json"]
        assert json.loads(settings)["pools"] == pools


def test_turned_off_there_is_nothing_of_it() -> None:
    recording = recorded(enabled=False)
    assert not [item.name for item in recording if item.name.startswith("slurm-health")]
    spec = named(recording, "slurm-pool-gpu-pods")["spec"]["template"]["spec"]
    assert "health" not in {volume["name"] for volume in spec["volumes"]}
    assert "SYSLOG" not in spec["containers"][0]["securityContext"]["capabilities"]["add"]


def test_tests_of_nodes_run_beside_the_watcher_and_start_anew_with_their_settings() -> None:
    def containers(**tests: Any) -> dict[str, Any]:
        spec = named(recorded(tests=tests), "slurm-health-pods")["spec"]["template"]["spec"]
        return {container["name"]: container for container in spec["containers"]}

    assert set(containers()) == {"health-watch"}
    tester = containers(enabled=True)["health-tests"]
    assert {"name": "health", "mountPath": "/config/health", "readOnly": True} in tester["volumeMounts"]
    assert containers(enabled=True, max_under_test=1)["health-tests"]["env"] != tester["env"]
