"""What the objects of the Prometheus operator's API say: what an existing Prometheus reads, and which rules hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from config.cluster import ClusterConfig
from slurm.alerts import alerts_of, rules_file
from slurm.monitoring import PATHS, of_cluster
from slurm.names import CONTROLLER_HOST, JOB_METRICS_PORT, SLURMCTLD_PORT
from slurm.prometheus import (
    LONGEST_VALUE,
    MOST_BYTES,
    MOST_SAMPLES,
    READ_EVERY,
    READS_EXPORTER,
    READS_JOBS,
    READS_SLURMCTLD,
)

API: Final = "monitoring.coreos.com/v1"

Spec = Mapping[str, Any]

_BOUNDS: Final = {
    "sampleLimit": MOST_SAMPLES,
    "bodySizeLimit": MOST_BYTES,
    "labelValueLengthLimit": LONGEST_VALUE,
}


def exporter_monitor(config: ClusterConfig, labels: Mapping[str, str]) -> Spec:
    """ServiceMonitor of the exporter. `labels`: of its Service."""
    return _monitor("endpoints", labels, [_endpoint(config, "metrics", READS_EXPORTER)])


def jobs_monitor(config: ClusterConfig, labels: Mapping[str, str]) -> Spec:
    """PodMonitor of the workers. `instance` is the node's name and the port, as jobstats and people look for it."""
    named = _constant("instance", f"$1:{JOB_METRICS_PORT}") | {"sourceLabels": ["__meta_kubernetes_pod_name"]}
    return _monitor("podMetricsEndpoints", labels, [_endpoint(config, "job-metrics", READS_JOBS, named)])


def slurmctld_monitor(config: ClusterConfig, labels: Mapping[str, str]) -> Spec:
    """ServiceMonitor of slurmctld, where it gives figures itself: several paths, which `instance` tells apart."""
    address = f"{CONTROLLER_HOST}:{SLURMCTLD_PORT}"
    named = {path: _constant("instance", f"{address}{path}") for path in PATHS}
    endpoints = [
        {"path": path, **_endpoint(config, "slurmctld", READS_SLURMCTLD, instance)} for path, instance in named.items()
    ]
    # slurmctld says no version of the format; the operator tells only a Prometheus that knows this (3 and later).
    return {**_monitor("endpoints", labels, endpoints), "fallbackScrapeProtocol": "PrometheusText0.0.4"}


def rules(config: ClusterConfig) -> Spec:
    """PrometheusRule with all alerts, each for this cluster's figures alone, and saying whose it is.

    Sums and counts have lost these labels, by which Alertmanager knows what follows from what.
    """
    own = [replace(alert, expression=of_cluster(alert.expression, config)) for alert in alerts_of(config)]
    labels = {"cluster": config.slurm.cluster_name, "namespace": config.cluster.namespace}
    return dict(json.loads(rules_file(own, runbooks=config.monitoring.runbooks, labels=labels)))


def _monitor(key: str, labels: Mapping[str, str], endpoints: list[dict[str, Any]]) -> dict[str, Any]:
    return {"selector": {"matchLabels": dict(labels)}, key: endpoints, **_BOUNDS}


def _endpoint(config: ClusterConfig, port: str, job: str, *relabelings: dict[str, Any]) -> dict[str, Any]:
    """`cluster`: Slurm's name of it, by which jobstats asks. `job`: as in a Prometheus of the cluster's own."""
    named = [_constant("cluster", config.slurm.cluster_name), _constant("job", job)]
    return {"port": port, "interval": READ_EVERY, "relabelings": [*relabelings, *named]}


def _constant(label: str, value: str) -> dict[str, Any]:
    return {"targetLabel": label, "replacement": value}
