"""The machines that a stack on Nebius asks for: what they are, what they mount, and which pods find them."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.graph import nebius_api
from tests.graph.nebius_recordings import groups
from tests.recordings import of_type, record
from tests.stacks import with_change


def _elastic(size: dict[str, int]) -> dict[str, Any]:
    """The stack with an elastic pool on a fabric."""
    sections = with_change(stacks.nebius_minimum(), "topology", {"plugin": "none"})
    return with_change(sections, "worker_nodes.default.size", size)


@pytest.mark.parametrize(
    ("largest", "fabric", "least", "groups_of_it"), [(64, True, 1, 1), (64, False, 0, 1), (250, False, 0, 3)]
)
def test_the_node_groups_of_an_elastic_pool_follow_it_from_nothing_to_its_max(
    largest: int, fabric: bool, least: int, groups_of_it: int
) -> None:
    sections = _elastic({"min": 0, "max": largest})
    if not fabric:
        default = sections["worker_nodes"]["default"]
        del default["gpu_cluster"]
        default |= {"platform": "cpu-d3", "preset": "16vcpu-64gb"}
    recording = record(sections, stack="test")
    assert nebius_api.check(recording) == {}
    found = {name: group for name, group in groups(recording).items() if name.startswith("slurm-default-")}
    assert len(found) == groups_of_it
    for group in found.values():
        assert group["autoscaling"] == {"minNodeCount": least, "maxNodeCount": 100}
        assert "fixedNodeCount" not in group


def _fits(pod: dict[str, Any], group: dict[str, Any]) -> bool:
    """Whether Kubernetes may put a pod on a machine of a group."""
    template = group["template"]
    effects = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}

    def tolerated(taint: dict[str, str]) -> bool:
        return any(
            item.get("key") in {None, taint["key"]}
            and item.get("effect") in {None, effects[taint["effect"]]}
            and (item["operator"] == "Exists" or item["value"] == taint["value"])
            for item in pod.get("tolerations", [])
        )

    selected = pod.get("nodeSelector", {}).items() <= template["metadata"]["labels"].items()
    return selected and all(tolerated(taint) for taint in template.get("taints", []))


def test_every_pod_finds_its_machines_and_only_those_and_its_file_systems_there(made: Recording) -> None:
    volumes = {
        item.inputs["spec"]["claimRef"]["name"]: item.inputs["spec"]["hostPath"]["path"]
        for item in of_type(made, "kubernetes:core/v1:PersistentVolume")
    }
    roles: dict[str, set[str]] = {}
    for item in made:
        pod = reveal(item.inputs).get("spec", {}).get("template", {}).get("spec")
        if item.type.startswith("kubernetes:") and pod and "GpuStack" not in item.parent:
            fitting = [group for group in groups(made).values() if _fits(pod, group)]
            assert fitting, f"{item.name} fits nowhere"
            roles[item.name] = {group["template"]["metadata"]["labels"]["slurmstack/role"] for group in fitting}
            claims = {each["persistentVolumeClaim"]["claimName"] for each in pod.get("volumes", []) if _is_claim(each)}
            for group in fitting:
                mounted = {f"/mnt/slurmstack/{each['mountTag']}" for each in group["template"].get("filesystems", [])}
                assert {volumes[claim] for claim in claims & volumes.keys()} <= mounted, item.name
    assert all(len(found) == 1 for found in roles.values())
    assert {"worker", "login", "controller", "system"} == set.union(*roles.values())


def _is_claim(volume: dict[str, Any]) -> bool:
    return "persistentVolumeClaim" in volume
