"""Objects for an existing Prometheus: rules that judge this cluster alone, targets with the names people look for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from config import load_config
from config.cluster import ClusterConfig
from slurm.alerts import ALERTS
from slurm.monitoring import PATHS, of_cluster
from slurm.prometheus import prometheus_files
from slurm.prometheus_operator import exporter_monitor, jobs_monitor, rules, slurmctld_monitor
from tests import alerts, stacks
from tests.stacks import with_change

LABELS = {"app": "x"}


def config(**changes: Any) -> ClusterConfig:
    sections = with_change(stacks.existing(), "monitoring", {"existing": {"namespace": "monitoring"}})
    for path, value in changes.items():
        sections = with_change(sections, path.replace("__", "."), value)
    return load_config(sections)


OWN, FOREIGN = 'namespace="slurm"', 'namespace="other"'

SERIES = (
    ("SlurmctldDown", "slurmstack_slurmctld_up{{{}}}", "0x200"),
    ("SlurmPrologFailed", 'slurmstack_node_drained{{{},node="n0",reason_kind="prolog"}}', "1x200"),
    ("SlurmNodesDown", 'slurmstack_node_down{{{},node="n0"}}', "1x200"),
)


def wrong(promtool: str, place: Path, *cases: alerts.Case) -> str:
    """What promtool says of the cases that are otherwise; see `alerts`."""
    return alerts.wrong(promtool, place, json.dumps(rules(config())), cases)


def test_an_alert_is_about_this_cluster_and_not_about_another(promtool: str, tmp_path: Path) -> None:
    own, foreign = (
        [(name, {series.format(labels): values}, labels == OWN) for name, series, values in SERIES]
        for labels in (OWN, FOREIGN)
    )
    assert wrong(promtool, tmp_path, *own, *foreign) == ""


def test_an_exporter_that_is_missing_is_not_hidden_by_another_cluster_s(promtool: str, tmp_path: Path) -> None:
    up = "slurmstack_slurmctld_up{{{}}}"
    cases = [("SlurmFiguresMissing", {up.format(labels): "1x200"}, labels == FOREIGN) for labels in (OWN, FOREIGN)]
    assert wrong(promtool, tmp_path, *cases) == ""


def test_nodes_of_two_clusters_are_not_counted_together(promtool: str, tmp_path: Path) -> None:
    def drained(*where: str) -> dict[str, str]:
        series = 'slurmstack_node_drained{{{},node="n{}",reason_kind="health"}}'
        return {series.format(labels, number): "1x200" for number, labels in enumerate(where)}

    cases = [("SlurmManyNodesDrained", drained(OWN, OWN, third), third == OWN) for third in (OWN, FOREIGN)]
    assert wrong(promtool, tmp_path, *cases) == ""


def test_only_of_a_node_of_this_cluster_that_is_down_nobody_is_told_twice(promtool: str, tmp_path: Path) -> None:
    worker = {f'up{{{OWN},job="slurmstack-jobs",instance="n0:9306"}}': "0x200"}
    known = 'slurmstack_node_down{{{},node="n0"}}'
    cases = [
        ("SlurmTargetDown", {**worker, known.format(whose): "1x200"}, whose == FOREIGN) for whose in (OWN, FOREIGN)
    ]
    assert wrong(promtool, tmp_path, *cases) == ""


def test_each_alert_says_whose_it_is_and_where_its_page_is() -> None:
    url = "https://git.example.com/pages"
    given = config(slurm__cluster_name="tiger", monitoring__existing__namespace="m", monitoring__runbooks=url)
    (group,) = rules(given)["groups"]
    for rule in group["rules"]:
        assert (rule["labels"]["cluster"], rule["labels"]["namespace"]) == ("tiger", "slurm")
        assert rule["annotations"]["runbook_url"] == f"{url}/{rule['alert']}.md"


def test_all_alerts_are_there_and_promtool_takes_them(promtool: str, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(json.dumps(rules(config())))
    command = [promtool, "check", "rules", "rules.yml"]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"SUCCESS: {len(ALERTS)} rules found" in done.stdout


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
