"""What Prometheus reads, a Prometheus of ours and an existing one: targets under the right names, rules, alerts."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from config import load_config
from config.cluster import ClusterConfig
from images.common.health.contract import Node, ok
from images.health.checks import disks, filesystem
from images.health.periodic import metrics
from slurm.alerts import ALERTS, rules_file
from slurm.prometheus import (
    exporter_monitor,
    jobs_monitor,
    keeps,
    prometheus_files,
    targets_file,
)
from tests import stacks
from tests.figures import OURS, SLURMS
from tests.stacks import with_change

KUBE_STATE: dict[str, Any] = {"kube_state": True, "kube_state_image": "registry.example.com/kube-state-metrics:v2.15.0"}


def config(version: str = "24.11", **monitoring: Any) -> ClusterConfig:
    sections = with_change(stacks.existing(), "slurm.version", version)
    return load_config(with_change(sections, "monitoring", {"install": True, **monitoring}))


def jobs(given: ClusterConfig) -> dict[str, dict[str, Any]]:
    found = json.loads(prometheus_files(given)["prometheus.yml"])["scrape_configs"]
    return {job["job_name"]: job for job in found}


def test_each_worker_is_a_target_by_its_name_and_no_login_node_is() -> None:
    (group,) = json.loads(targets_file(config()))
    assert group == {
        "targets": ["cpu-0:9306", "cpu-1:9306", "cpu-2:9306", "cpu-3:9306", "gpu-0:9306", "gpu-1:9306"],
        "labels": {"cluster": "slurm"},
    }


def test_workers_of_elastic_pools_are_found_where_they_are_up_alone() -> None:
    sections = with_change(stacks.existing(), "monitoring", {"install": True})
    elastic = load_config(with_change(sections, "worker_nodes.gpu.size", {"max": 64}))
    (group,) = json.loads(targets_file(elastic))
    assert group["targets"] == ["cpu-0:9306", "cpu-1:9306", "cpu-2:9306", "cpu-3:9306"]
    assert jobs(elastic)["slurmstack-jobs"]["http_sd_configs"][0]["url"] == "http://exporter:9341/targets"
    assert "http_sd_configs" not in jobs(config())["slurmstack-jobs"]


def test_each_target_but_prometheus_itself_is_watched_by_an_alert() -> None:
    (alert,) = (alert for alert in ALERTS if alert.name == "SlurmTargetDown")
    (pattern,) = re.findall(r'job=~"(.*?)"', alert.expression)
    given = jobs(config(**KUBE_STATE))
    assert {name for name in given if re.fullmatch(pattern, name)} == given.keys() - {"prometheus"}


def test_figures_leave_before_the_volume_is_full() -> None:
    assert keeps(config(storage="10Gi", retention=30)) == {"time": "30d", "size": "8589MB"}


LABELS = {"app": "x"}


def operated(**changes: Any) -> ClusterConfig:
    sections = with_change(stacks.existing(), "monitoring", {"existing": {"namespace": "monitoring"}})
    for path, value in changes.items():
        sections = with_change(sections, path.replace("__", "."), value)
    return load_config(sections)


def labelled(endpoint: dict[str, Any]) -> dict[str, str]:
    return {item["targetLabel"]: item["replacement"] for item in endpoint["relabelings"]}


def test_targets_have_the_labels_that_jobstats_asks_for() -> None:
    named = operated(slurm__cluster_name="tiger")
    (job,) = jobs_monitor(named, LABELS)["podMetricsEndpoints"]
    assert labelled(job) == {"instance": "$1:9306", "cluster": "tiger", "job": "slurmstack-jobs"}
    assert job["relabelings"][0]["sourceLabels"] == ["__meta_kubernetes_pod_name"]
    (exporter,) = exporter_monitor(named, LABELS)["endpoints"]
    assert labelled(exporter) == {"cluster": "tiger", "job": "slurmstack-exporter"}


def test_targets_have_the_names_by_which_alerts_know_those_of_the_cluster_s_own_prometheus() -> None:
    specs = [exporter_monitor(operated(), LABELS), jobs_monitor(operated(), LABELS)]
    endpoints = [one for spec in specs for key in ("endpoints", "podMetricsEndpoints") for one in spec.get(key, ())]
    read = json.loads(prometheus_files(operated(monitoring={"install": True}))["prometheus.yml"])["scrape_configs"]
    assert {labelled(one)["job"] for one in endpoints} == {job["job_name"] for job in read} - {"prometheus"}


ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("runbooks", [None, "https://git.example.com/docs/runbooks.md"])
def test_each_alert_says_where_its_section_is_and_where_people_find_it(runbooks: str | None) -> None:
    for rule in json.loads(rules_file(runbooks=runbooks))["groups"][0]["rules"]:
        annotations = rule["annotations"]
        page, _, section = annotations["runbook"].partition("#")
        assert f"\n## {rule['alert']}\n" in (ROOT / page).read_text(encoding="utf-8")
        assert section == rule["alert"].lower()
        assert annotations.get("runbook_url") == (runbooks and f"{runbooks}#{section}")


def test_each_figure_in_an_alert_is_one_that_a_program_of_ours_gives() -> None:
    """Of GPUs, DCGM's: nothing here reads them (docs/monitoring.md). The jail is at /jail in each worker."""
    outcomes = {
        disks.NAME: disks.judge(Path("/jail"), os.statvfs(ROOT), Node(name="w-0")),
        filesystem.NAME: ok(),
    }
    health = metrics(outcomes, 0)
    given = {*OURS, *SLURMS, *re.findall(r"^slurmstack_\w+", health, re.MULTILINE)}
    expressions = " ".join(alert.expression for alert in ALERTS)
    assert set(re.findall(r"\bslurm(?:stack)?_\w+", expressions)) <= given
    for series in re.findall(r"\bslurmstack_health_\w+{[^}~]*}", expressions):
        assert f"\n{series} " in health
