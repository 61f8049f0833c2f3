"""The exporter: what it may do, whom it is, and what changes where figures are asked for."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from slurm.names import SLURMCTLD_PORT
from tests import stacks
from tests.graph.objects import (
    changed,
    containers,
    differing,
    environment,
    inputs,
    pod,
    recorded,
)
from tests.stacks import ROOT

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
        "slurm-backup-stack-file",  # of which the next backup has a copy
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "uid", "people"),
    [({}, 953, "yes"), ({"PrivateData": ["jobs", "users"]}, 64030, "no"), ({"PrivateData": "jobs"}, 64030, "no")],
)
def test_private_data_are_asked_for_as_slurms_user_and_nobody_is_named(
    settings: dict[str, Any], uid: int, people: str
) -> None:
    exporter = containers(pod(recorded(sections(slurm__settings=settings)), PODS))["exporter"]
    assert environment(exporter)["BY_PERSON"] == people
    assert exporter["securityContext"]["runAsUser"] == uid


def test_the_policy_of_the_page_about_metrics_opens_slurmctld_s_port_and_nothing_else() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    spec = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])["spec"]
    controller = inputs(recorded(sections()), "slurm-network-policies-controller")["spec"]["podSelector"]["matchLabels"]
    assert spec["podSelector"]["matchLabels"].items() <= controller.items()
    assert [rule["ports"] for rule in spec["ingress"]] == [[{"port": SLURMCTLD_PORT}]]
