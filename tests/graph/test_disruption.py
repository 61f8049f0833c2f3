"""What may be evicted, by whom, and which pods come before others: PodDisruptionBudgets and PriorityClasses."""

from __future__ import annotations

from typing import Any

import pytest

from cli.program.values import reveal
from tests import stacks
from tests.graph.objects import COMPONENT, ELASTIC, changed, everything, objects, recorded, templates


def sections(**more: Any) -> dict[str, Any]:
    return changed(stacks.existing_full(), worker_nodes__gpu__size=ELASTIC, **more)


@pytest.mark.parametrize(("size", "expected"), [(0, False), (1, False), (2, True), (5, True)])
def test_login_nodes_leave_one_after_the_other_and_a_single_one_when_it_is_to(size: int, expected: bool) -> None:
    budgets = objects(recorded(sections(login__size=size)), "PodDisruptionBudget")
    assert ("login" in budgets) is expected
    if expected:
        spec = budgets["login"]["spec"]
        assert (spec["maxUnavailable"], spec["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    single = objects(recorded(sections(login__size=size, rest__size=1)), "PodDisruptionBudget")
    assert "rest" not in single


def test_no_budget_keeps_a_machine_from_being_drained_for_ever() -> None:
    """One over pods that exist once, or over those of a PodTemplate, which has no scale, would never allow anything."""
    recording = recorded(sections())
    budgets = objects(recording, "PodDisruptionBudget")
    assert budgets.keys() == {"login", "rest"}
    for budget in budgets.values():
        wanted = budget["spec"]["selector"]["matchLabels"].items()
        covered = [name for name, pod in templates(recording).items() if wanted <= pod["metadata"]["labels"].items()]
        (owner,) = [item for item in recording if item.name in covered]
        assert owner.type.rpartition(":")[2] in {"StatefulSet", "Deployment"}
        assert reveal(owner.inputs)["spec"]["replicas"] > 1


def test_pods_have_the_priority_class_of_the_stack_or_of_their_pool() -> None:
    mine = {"cluster": {"priority_class": "slurm"}, "worker_nodes__gpu__priority_class": "slurm-gpu"}
    recording = recorded(sections(**mine))
    found = {name: pod["spec"].get("priorityClassName") for name, pod in templates(recording).items()}
    assert found.pop("slurm-pool-gpu-template") == "slurm-gpu"
    assert set(found.values()) == {"slurm"}
    assert not objects(recording, "PriorityClass"), "who names one may lack the right"


SAFE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}


@pytest.mark.parametrize("stack", [stacks.dev(), everything(), stacks.nebius_full()])
def test_no_autoscaler_takes_the_machine_of_jobs_sessions_and_slurm_s_service(stack: dict[str, Any]) -> None:
    """Of all others it may: they are started elsewhere, and nobody sees it."""
    recording = recorded(stack)
    jobs = {item.name for item in recording if item.type.endswith((":Job", ":CronJob"))}
    for name, made in templates(recording).items():
        component = made["metadata"]["labels"][COMPONENT]
        stays = component in {"worker", "login", "controller", "slurmdbd", "database"} or name in jobs
        noted = made["metadata"].get("annotations") or {}
        assert {key: noted.get(key) for key in SAFE} == (SAFE if stays else dict.fromkeys(SAFE)), name
