"""What may be evicted, and which pods are ended for others: PodDisruptionBudgets and PriorityClasses."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.manifests import manifests
from cli.program.recording import Recording
from cli.program.values import reveal
from tests import stacks
from tests.graph.elastic import ELASTIC, objects
from tests.recordings import record
from tests.stacks import with_change


def pods(recording: Recording) -> dict[str, dict[str, Any]]:
    """Templates of pods, by what makes them; an elastic pool's too."""
    found = {}
    for item in recording:
        inputs = reveal(item.inputs) if item.type.startswith("kubernetes:") else {}
        template = inputs.get("template") or (inputs.get("spec") or {}).get("template")
        if isinstance(template, dict) and "slurmstack:index:GpuStack" not in item.parent:
            found[item.name] = template
    return found


def sections(**more: Any) -> dict[str, Any]:
    found = with_change(stacks.existing_full(), "worker_nodes.gpu.size", ELASTIC)
    for path, value in more.items():
        found = with_change(found, path.replace("__", "."), value)
    return found


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_login_nodes_leave_one_after_the_other_and_a_single_one_when_it_is_to(size: int) -> None:
    budgets = objects(record(sections(login__size=size), stack="prod"), "PodDisruptionBudget")
    assert ("login" in budgets) is (size > 1)
    if size > 1:
        spec = budgets["login"]["spec"]
        assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_the_login_service_sends_nobody_to_one_that_leaves() -> None:
    assert "publishNotReadyAddresses" not in objects(record(sections(), stack="prod"), "Service")["login"]["spec"]


def test_no_budget_keeps_a_machine_from_being_drained_for_ever() -> None:
    """One over pods that exist once, or over those of a PodTemplate, which has no scale, would never allow anything."""
    recording = record(sections(), stack="prod")
    budgets = objects(recording, "PodDisruptionBudget")
    assert budgets.keys() == {"login", "rest"}
    for budget in budgets.values():
        wanted = budget["spec"]["selector"]["matchLabels"].items()
        covered = [name for name, pod in pods(recording).items() if wanted <= pod["metadata"]["labels"].items()]
        (owner,) = [item for item in recording if item.name in covered]
        assert owner.type.rpartition(":")[2] in {"StatefulSet", "Deployment"}
        assert reveal(owner.inputs)["spec"]["replicas"] > 1


FIRST = {"controller", "slurmdbd", "database", "login", "elastic"}


def test_slurm_s_daemons_and_login_nodes_get_room_before_workers_and_end_no_pod_for_it() -> None:
    recording = record(sections(), stack="prod")
    (made,) = [item for item in manifests(recording) if item.kind == "PriorityClass"]
    assert made.name == "slurm-control", "two stacks in one Kubernetes have two"
    assert made.cluster_scoped
    assert made.document["metadata"]["labels"]["app.kubernetes.io/instance"] == "slurm", "destroy finds it by it"
    assert made.document["value"] > 0
    assert made.document["preemptionPolicy"] == "Never"
    assert not made.document.get("globalDefault")
    classes = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["spec"].get("priorityClassName")
        for pod in pods(recording).values()
    }
    assert {name for name, of_it in classes.items() if of_it == "slurm-control"} == FIRST
    assert {classes[name] for name in classes.keys() - FIRST} == {None}


def test_pods_have_the_priority_class_of_the_stack_or_of_their_pool() -> None:
    mine = {"cluster": {"priority_class": "slurm"}, "worker_nodes__gpu__priority_class": "slurm-gpu"}
    found = {
        name: pod["spec"].get("priorityClassName") for name, pod in pods(record(sections(**mine), stack="prod")).items()
    }
    assert found.pop("slurm-pool-gpu-template") == "slurm-gpu"
    assert set(found.values()) == {"slurm"}
    assert not objects(record(sections(**mine), stack="prod"), "PriorityClass"), "who names one may lack the right"
