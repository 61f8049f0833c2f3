"""Objects for an existing Prometheus: rules that judge this cluster alone, targets with the names people look for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from config import load_config
from config.cluster import ClusterConfig
from slurm.monitoring import PATHS, of_cluster
from slurm.prometheus import exporter_monitor, jobs_monitor, prometheus_files, rules, slurmctld_monitor
from tests import stacks
from tests.stacks import with_change

LABELS = {"app": "x"}


def config(**changes: Any) -> ClusterConfig:
    sections = with_change(stacks.existing(), "monitoring", {"existing": {"namespace": "monitoring"}})
    for path, value in changes.items():
        sections = with_change(sections, path.replace("__", "."), value)
    return load_config(sections)


def test_each_alert_says_whose_it_is_and_where_its_runbook_is() -> None:
    url = "https://git.example.com/runbooks.md"
    given = config(slurm__cluster_name="tiger", monitoring__existing__namespace="m", monitoring__runbooks=url)
    (group,) = rules(given)["groups"]
    for rule in group["rules"]:
        assert (rule["labels"]["cluster"], rule["labels"]["namespace"]) == ("tiger", "slurm")
        assert rule["annotations"]["runbook_url"] == f"{url}#{rule['alert'].lower()}"


def labelled(endpoint: dict[str, Any]) -> dict[str, str]:
    return {item["targetLabel"]: item["replacement"] for item in endpoint["relabelings"]}


def test_targets_have_the_labels_that_jobstats_asks_for() -> None:
    named = config(slurm__cluster_name="tiger")
    (job,) = jobs_monitor(named, LABELS)["podMetricsEndpoints"]
    assert labelled(job) == {"instance": "$1:9306", "cluster": "tiger", "job": "slurmstack-jobs"}
    assert job["relabelings"][0]["sourceLabels"] == ["__meta_kubernetes_pod_name"]
    (exporter,) = exporter_monitor(named, LABELS)["endpoints"]
    assert labelled(exporter) == {"cluster": "tiger", "job": "slurmstack-exporter"}


def test_each_path_of_slurmctld_is_a_series_of_its_own() -> None:
    endpoints = slurmctld_monitor(config(slurm__version="26.05"), LABELS)["endpoints"]
    assert tuple(endpoint["path"] for endpoint in endpoints) == PATHS
    assert len({labelled(endpoint)["instance"] for endpoint in endpoints}) == len(PATHS)


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_targets_have_the_names_by_which_alerts_know_those_of_the_cluster_s_own_prometheus(version: str) -> None:
    given = config(slurm__version=version)
    specs = [exporter_monitor(given, LABELS), jobs_monitor(given, LABELS)]
    specs += [slurmctld_monitor(given, LABELS)] if version == "26.05" else []
    endpoints = [one for spec in specs for key in ("endpoints", "podMetricsEndpoints") for one in spec.get(key, ())]
    own = config(slurm__version=version, monitoring={"install": True})
    read = json.loads(prometheus_files(own)["prometheus.yml"])["scrape_configs"]
    assert {labelled(one)["job"] for one in endpoints} == {job["job_name"] for job in read} - {"prometheus"}


def test_whether_targets_are_read_is_asked_of_this_cluster_alone() -> None:
    assert of_cluster('up{job=~"slurm.+"} == 0', config()) == 'up{namespace="slurm",job=~"slurm.+"} == 0'
    assert of_cluster("absent(slurm_nodes) or slurm_jobs{} > 0", config()) == (
        'absent(slurm_nodes{namespace="slurm"}) or slurm_jobs{namespace="slurm",} > 0'
    )
