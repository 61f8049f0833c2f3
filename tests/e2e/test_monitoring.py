"""Monitoring on the real local Kubernetes: what is read, what the dashboards show, and one alert that is told."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from local import processes
from slurm.dashboards.boards import BOARDS
from slurm.names import ALERTMANAGER_PORT, PROMETHEUS_PORT
from tests.e2e.conftest import ENGINES, own_cluster
from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.panels import as_asked
from tests.stacks import dev, with_change

pytestmark = pytest.mark.watch


@pytest.fixture(scope="module")
def slurm(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnKubernetes]:
    """A cluster of two workers with all of monitoring."""
    sections = with_change(dev(), "login.size", 1) | {
        "cluster": {"namespace": "e2e-monitoring"},
        "rest": {"enabled": True},
        "monitoring": {"install": True, "kube_state": True, "dashboards": True, "storage": "1Gi"},
    }
    directory = tmp_path_factory.mktemp("monitoring")
    with own_cluster(ENGINES[0], directory, sections, "default-0", "default-1") as slurm:
        yield slurm


ASK = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=10).read().decode())"


def answer(slurm: SlurmOnKubernetes, url: str) -> Any:
    """Asked from the cluster's own pod: only the dashboard reaches it besides."""
    return json.loads(slurm.exec("prometheus-0", "python3", "-c", ASK, url, container="prometheus"))


def ask(slurm: SlurmOnKubernetes, path: str, **query: str) -> Any:
    """What Prometheus' API answers."""
    return answer(slurm, f"http://localhost:{PROMETHEUS_PORT}/api/v1/{path}?{urlencode(query)}")["data"]


def told(slurm: SlurmOnKubernetes) -> set[str]:
    """Names of the alerts that Alertmanager has now."""
    found = answer(slurm, f"http://localhost:{ALERTMANAGER_PORT}/api/v2/alerts?active=true")
    return {alert["labels"]["alertname"] for alert in found}


def test_prometheus_reads_all_that_there_is_and_has_figures_of_slurm(slurm: SlurmOnKubernetes) -> None:
    def wanted() -> set[tuple[str, str]]:
        return {
            ("prometheus", "localhost:9090"),
            ("slurmstack-exporter", "exporter:9341"),
            ("slurmstack-jobs", "default-0:9306"),
            ("slurmstack-jobs", "default-1:9306"),
            ("slurmstack-kubernetes", "kube-state:8080"),
        }

    def read() -> bool:
        targets = ask(slurm, "targets")["activeTargets"]
        up = {(found["labels"]["job"], found["labels"]["instance"]) for found in targets if found["health"] == "up"}
        idle = ask(slurm, "query", query="slurm_nodes_idle")["result"]
        idle_is_known = [found["value"][1] for found in idle] == ["2"]
        return up == wanted() and len(targets) == len(up) == 5 and idle_is_known

    wait_until(read, "all targets are read, and two nodes are idle")
    (alertmanager,) = ask(slurm, "alertmanagers")["activeAlertmanagers"]
    assert alertmanager["url"] == "http://localhost:9093/api/v2/alerts"


QUERIES = """
import json, sys, urllib.parse as parse, urllib.request as request
for query in json.loads(sys.argv[1]):
    url = "http://localhost:9090/api/v1/query?" + parse.urlencode({"query": query})
    if not json.load(request.urlopen(url, timeout=30))["data"]["result"]:
        print(query)
"""
"""Prints those without an answer, with Prometheus itself; fails where one is no PromQL."""


def test_with_a_node_drained_under_jobs_each_panel_has_data_and_the_alert_is_told(slurm: SlurmOnKubernetes) -> None:
    """And it is over when that is mended. Panels of what this machine does not have, such as GPUs, are marked.

    An alert that has to hold for a minute only, which the reason of the drain tells.
    """
    absent = {"gpus", "dcgm", *([] if processes.is_v2() else ["cgroups"])}
    panels = [panel for board in BOARDS for panel in board.panels()]
    queries = [as_asked(query) for panel in panels if panel.needs not in absent for query in panel.queries]
    assert len(queries) > 40
    (files,) = slurm.kubectl.items("configmap", "grafana-dashboards", "-n", slurm.namespace)
    shown = [json.loads(text)["panels"] for text in files["data"].values()]
    expressions = {target["expr"] for page in shown for panel in page for target in panel.get("targets", ())}
    assert expressions == {query.expression for panel in panels for query in panel.queries}

    def empty() -> list[str]:
        return slurm.exec(
            "prometheus-0", "python3", "-c", QUERIES, json.dumps(queries), container="prometheus"
        ).splitlines()

    runs, waits = (slurm.submit("sleep 600", "--exclusive", "--nodes=2") for _ in range(2))
    slurm.await_job(runs, "RUNNING")
    slurm.slurm("scontrol update nodename=default-0 state=drain reason='Prolog error'")
    try:
        wait_until(lambda: "SlurmPrologFailed" in told(slurm), "the alert is told")
        deadline = time.monotonic() + 150
        while (without := empty()) and time.monotonic() < deadline:
            time.sleep(5)
        assert without == []
    finally:
        slurm.slurm(f"scancel {runs} {waits}; scontrol update nodename=default-0 state=resume")
    wait_until(lambda: "SlurmPrologFailed" not in told(slurm), "the alert is over")
    slurm.await_idle("default-0", "default-1")
