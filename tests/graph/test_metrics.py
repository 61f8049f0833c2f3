"""The exporter: what it may do, whom it is, and what changes where figures are asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests import stacks
from tests.graph.objects import (
    COMPONENT,
    changed,
    containers,
    differing,
    environment,
    inputs,
    pod,
    recorded,
)

PODS = "slurm-exporter-pods"


def sections(**changes: Any) -> dict[str, Any]:
    """A stack with all components and figures."""
    return changed(stacks.existing_full(), monitoring__enabled=True, **changes)


def test_figures_restart_nothing_but_workers_which_wait_for_their_jobs() -> None:
    """A worker's pod has a port more, and the program behind it is started before jobs can take that."""
    found = differing(recorded(sections(), monitoring__enabled=False), recorded(sections()))
    assert {name for name in found if "exporter" not in name} == {
        *(f"slurm-network-policies-{name}" for name in ("controller", "slurmdbd", "worker")),
        "slurm-pool-cpu-pods", "slurm-pool-gpu-pods", "slurm-pool-plain-pods",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("version", "settings", "by_slurmctld", "uid", "people"),
    [
        ("24.11", {}, False, 953, "yes"),
        ("24.11", {"PrivateData": ["jobs", "users"]}, False, 64030, "no"),
        ("26.05", {}, True, 953, "yes"),
        ("26.05", {"PrivateData": "jobs"}, False, 64030, "no"),
    ],
)
def test_slurms_own_figures_come_from_exactly_one_place_and_those_of_people_from_the_exporter(
    version: str, settings: dict[str, Any], by_slurmctld: bool, uid: int, people: str
) -> None:
    recording = recorded(sections(slurm__version=version, slurm__settings=settings))
    exporter = containers(pod(recording, PODS))["exporter"]
    told = environment(exporter)
    assert (told["SLURMS_OWN"], told["BY_PERSON"]) == ("no" if by_slurmctld else "yes", people)
    assert exporter["securityContext"]["runAsUser"] == uid
    conf = inputs(recording, "slurm-configuration-files")["data"]["slurm.conf"]
    assert ("MetricsType=metrics/openmetrics\n" in conf) == by_slurmctld


@pytest.mark.parametrize(("component", "number"), [("exporter", 9341), ("worker", 9306)])
def test_users_do_not_reach_the_figures_and_other_namespaces_do(component: str, number: int) -> None:
    spec = inputs(recorded(sections()), f"slurm-network-policies-{component}")["spec"]
    assert spec["podSelector"]["matchLabels"][COMPONENT] == component
    (ingress,) = spec["ingress"]
    ((peer,), (port,)) = ingress["from"], ingress["ports"]
    assert port["port"] == number
    apart = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["slurm"]}
    assert peer == {"namespaceSelector": {"matchExpressions": [apart]}}
