"""Pods that keep machines warm for nodes of elastic pools, and give way to them."""

from __future__ import annotations

from typing import Any

from cli.program.manifests import manifests
from cli.program.recording import Recording
from components.kit.workload import STAY
from config.base import parse_bytes, parse_cpus
from tests import stacks
from tests.graph.elastic import ELASTIC, objects, recorded
from tests.graph.reachability import network
from tests.recordings import record
from tests.stacks import with_change

POOL = "slurmstack/pool"


def warm(count: int = 3, **more: Any) -> Recording:
    return recorded(ELASTIC, warm_machines=count, **more)


def placeholder(recording: Recording) -> dict[str, Any]:
    return objects(recording, "Deployment")["placeholder-gpu"]


def asked(pod: dict[str, Any]) -> dict[str, float]:
    """What a pod asks for in all: CPUs, bytes and devices."""
    total: dict[str, float] = {}
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        for name, amount in container["resources"]["requests"].items():
            read = parse_cpus if name == "cpu" else float if amount.isdigit() else parse_bytes
            total[name] = round(total.get(name, 0) + read(amount), 3)
    return total


def test_each_asks_for_exactly_what_a_worker_asks_for_and_goes_where_workers_go() -> None:
    sections = with_change(stacks.existing(), "worker_nodes.gpu.size", ELASTIC)
    sections = with_change(sections, "worker_nodes.gpu.warm_machines", 3)
    sections = with_change(sections, "worker_nodes.gpu.node_selector", {"disk": "nvme"})
    for more in ({}, {"sssd": {"secret": "sssd"}}):
        recording = record({**sections, **more}, stack="prod")
        worker = objects(recording, "PodTemplate")["gpu"]["template"]["spec"]
        spec = placeholder(recording)["spec"]
        pod = spec["template"]["spec"]
        assert spec["replicas"] == 3
        assert asked(pod) == asked(worker)
        assert asked(pod)["nvidia.com/gpu"] == 8
        assert pod["nodeSelector"] == worker["nodeSelector"] == {"disk": "nvme"}
        assert pod["tolerations"] == worker["tolerations"]
        assert pod["containers"][0]["image"] == worker["containers"][0]["image"], "which its machine then has already"


def test_workers_take_its_place_at_once_and_it_takes_nobody_s() -> None:
    recording = warm()
    (made,) = [item for item in manifests(recording) if item.name == "slurm-placeholder"]
    pod = placeholder(recording)["spec"]["template"]["spec"]
    assert made.name == pod["priorityClassName"] == "slurm-placeholder", "two stacks in one Kubernetes have two"
    assert made.cluster_scoped
    assert made.document["metadata"]["labels"]["app.kubernetes.io/instance"] == "slurm", "destroy finds it by it"
    assert -10 <= made.document["value"] < 0, "Cluster Autoscaler makes no machine for less"
    assert made.document["preemptionPolicy"] == "Never"
    assert not made.document.get("globalDefault")
    assert pod["terminationGracePeriodSeconds"] == 0
    assert placeholder(recording)["spec"]["strategy"] == {"type": "Recreate"}, "and no machine more at a change"


def test_no_update_waits_for_it_and_nobody_takes_it_for_a_worker() -> None:
    recording = warm()
    item = placeholder(recording)
    pool = objects(recording, "StatefulSet")["cpu"]
    assert item["metadata"]["annotations"].items() <= pool["metadata"]["annotations"].items(), "as for a pool"
    assert "pulumi.com/waitFor" in item["metadata"]["annotations"]
    template = item["spec"]["template"]
    for labels in (item["metadata"]["labels"], template["metadata"]["labels"], item["spec"]["selector"]["matchLabels"]):
        assert labels["app.kubernetes.io/component"] == "placeholder"
        assert not {POOL, "slurmstack/slurm-node"} & labels.keys()
    assert not STAY.keys() & (template["metadata"].get("annotations") or {}).keys(), "its machine may go"


def test_it_has_no_right_at_all_and_reaches_nobody() -> None:
    recording = warm()
    pod = placeholder(recording)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False
    assert not pod.get("volumes")
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65534,
        "runAsGroup": 65534,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    reached = network(recording)
    others = [*reached.pods, "151.101.0.223", "10.0.0.1"]
    for port in (22, 53, 443, 6817, 6818):
        for other in others:
            assert not reached.allows("placeholder", other, port)
            assert not reached.allows(other, "placeholder", port)


def test_there_is_none_where_none_is_asked_for() -> None:
    for recording in (recorded(2), recorded(ELASTIC), warm(0)):
        assert "slurm-placeholder" not in objects(recording, "PriorityClass")
        assert not [name for name in objects(recording, "Deployment") if name.startswith("placeholder")]


def test_a_pool_with_them_is_as_it_was() -> None:
    for kind in ("PodTemplate", "StatefulSet", "Role"):
        assert objects(warm(), kind) == objects(recorded(ELASTIC), kind)
