"""What Prometheus and Alertmanager are told: what to read, which metrics are a cluster's own, which rules hold.

For our own in JSON, which any reader of YAML takes; for an existing Prometheus as objects of its operator's API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from config.base import parse_bytes
from config.cluster import ClusterConfig
from config.sections.slurm import folded
from slurm.alerts import ALERTS, GROUP_BY, INHIBITIONS, rule_groups, rules_file
from slurm.dashboards.boards import BOARDS
from slurm.names import (
    ALERTMANAGER_PORT,
    EXPORTER,
    EXPORTER_PORT,
    JOB_METRICS_PORT,
    KUBE_STATE,
    KUBE_STATE_PORT,
    PROMETHEUS_PORT,
    node_name,
)

CONFIG_DIR: Final = "/config/prometheus"
TARGETS_DIR: Final = "/config/targets"
ALERTMANAGER_DIR: Final = "/config/alertmanager"

PROMETHEUS_FILE: Final = "prometheus.yml"
RULES_FILE: Final = "rules.yml"
TARGETS_FILE: Final = "nodes.json"
ALERTMANAGER_FILE: Final = "alertmanager.yml"

READ_EVERY: Final = "30s"
"""The exporter asks Slurm as often."""
_JUDGE_EVERY: Final = "15s"
"""Between two evaluations of the rules: so much later than the metrics an alert begins, and is over."""

LONGEST_VALUE: Final = 300
_BOUNDS: Final = {"sample_limit": 200_000, "body_size_limit": "64MB", "label_value_length_limit": LONGEST_VALUE}
"""Of one reading, which counts as failed beyond them. Users write names into metrics (accounts), and Prometheus' memory
and volume are for all. A thousand nodes and as many groups are 60,000 samples."""

READS_EXPORTER: Final = "slurmstack-exporter"
READS_JOBS: Final = "slurmstack-jobs"
_READS_OBJECTS: Final = "slurmstack-kubernetes"
"""Names of what is read, in the label `job`, by which alerts know it."""


def prometheus_files(config: ClusterConfig) -> dict[str, str]:
    """What Prometheus reads at its start: its configuration and its rules."""
    return {
        PROMETHEUS_FILE: _text(_prometheus(config)),
        RULES_FILE: rules_file(runbooks=config.monitoring.runbooks),
    }


def targets_file(config: ClusterConfig) -> str:
    """The workers of fixed pools, which Prometheus follows while it runs: one may grow without a new pod of its own.

    Names, as the headless Service gives them, and not what DNS lists: that would be addresses, while metrics carry the
    node's name (`instance`: `default-0:9306`); it would have login nodes; and a node that is missing would not be seen.
    """
    fixed = {name: pool for name, pool in config.worker_nodes.items() if not pool.is_elastic}
    names = [node_name(name, number) for name, pool in fixed.items() for number in range(pool.most)]
    targets = [f"{name}:{JOB_METRICS_PORT}" for name in names]
    return _text([{"targets": targets, "labels": {"cluster": config.slurm.cluster_name}}])


def alertmanager_file() -> str:
    """Alerts are shown and can be silenced, and nobody is told: where no Secret says whom."""
    route = {"receiver": "nobody", "group_by": list(GROUP_BY)}
    return _text({"route": route, "inhibit_rules": list(INHIBITIONS), "receivers": [{"name": "nobody"}]})


def keeps(config: ClusterConfig) -> dict[str, str]:
    """How long Prometheus keeps what it has read, and how much at most: a full volume would end all.

    The rest is for what is being compacted, and for Alertmanager's silences.
    """
    size = int(parse_bytes(config.monitoring.storage) * 0.8) // 10**6
    return {"time": f"{config.monitoring.retention}d", "size": f"{size}MB"}


def _prometheus(config: ClusterConfig) -> dict[str, Any]:
    jobs = [
        _job("prometheus", {"static_configs": [{"targets": [f"localhost:{PROMETHEUS_PORT}"]}]}),
        _job(READS_EXPORTER, {"static_configs": [{"targets": [f"{EXPORTER}:{EXPORTER_PORT}"]}]}),
        _job(READS_JOBS, _workers(config)),
    ]
    if config.monitoring.has_kube_state:
        jobs.append(_job(_READS_OBJECTS, {"static_configs": [{"targets": [f"{KUBE_STATE}:{KUBE_STATE_PORT}"]}]}))
    return {
        "global": {
            "scrape_interval": READ_EVERY,
            "evaluation_interval": _JUDGE_EVERY,
            "external_labels": {"cluster": config.slurm.cluster_name},
        },
        "rule_files": [f"{CONFIG_DIR}/{RULES_FILE}"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"localhost:{ALERTMANAGER_PORT}"]}]}]},
        "scrape_configs": jobs,
    }


def _job(name: str, more: Mapping[str, Any]) -> dict[str, Any]:
    return {"job_name": name, **_BOUNDS, **more}


def _workers(config: ClusterConfig) -> dict[str, Any]:
    """Those of elastic pools come and go, and who is up now the exporter tells."""
    found: dict[str, Any] = {"file_sd_configs": [{"files": [f"{TARGETS_DIR}/{TARGETS_FILE}"]}]}
    if config.elastic_pools:
        found["http_sd_configs"] = [
            {"url": f"http://{EXPORTER}:{EXPORTER_PORT}/targets", "refresh_interval": READ_EVERY}
        ]
        found["relabel_configs"] = [{"target_label": "cluster", "replacement": config.slurm.cluster_name}]
    return found


def _text(content: Any) -> str:
    return json.dumps(content, indent=2) + "\n"


API: Final = "monitoring.coreos.com/v1"

Spec = Mapping[str, Any]

_OPERATOR_BOUNDS: Final = dict(
    zip(("sampleLimit", "bodySizeLimit", "labelValueLengthLimit"), _BOUNDS.values(), strict=True)
)


def exporter_monitor(config: ClusterConfig, labels: Mapping[str, str]) -> Spec:
    """ServiceMonitor of the exporter. `labels`: of its Service."""
    return _monitor("endpoints", labels, [_endpoint(config, "metrics", READS_EXPORTER)])


def jobs_monitor(config: ClusterConfig, labels: Mapping[str, str]) -> Spec:
    """PodMonitor of the workers. `instance` is the node's name and the port, as jobstats and people look for it."""
    named = _constant("instance", f"$1:{JOB_METRICS_PORT}") | {"sourceLabels": ["__meta_kubernetes_pod_name"]}
    return _monitor("podMetricsEndpoints", labels, [_endpoint(config, "job-metrics", READS_JOBS, named)])


def rules(config: ClusterConfig) -> Spec:
    """PrometheusRule with all alerts, each for this cluster's metrics alone, and saying whose it is.

    Sums and counts have lost these labels, by which Alertmanager knows what follows from what.
    """
    own = [replace(alert, expression=of_cluster(alert.expression, config)) for alert in ALERTS]
    labels = {"cluster": config.slurm.cluster_name, "namespace": config.cluster.namespace}
    return rule_groups(own, runbooks=config.monitoring.runbooks, labels=labels)


def _monitor(key: str, labels: Mapping[str, str], endpoints: list[dict[str, Any]]) -> dict[str, Any]:
    return {"selector": {"matchLabels": dict(labels)}, key: endpoints, **_OPERATOR_BOUNDS}


def _endpoint(config: ClusterConfig, port: str, job: str, *relabelings: dict[str, Any]) -> dict[str, Any]:
    """`cluster`: Slurm's name of it, by which jobstats asks. `job`: as in a Prometheus of the cluster's own."""
    named = [_constant("cluster", config.slurm.cluster_name), _constant("job", job)]
    return {"port": port, "interval": READ_EVERY, "relabelings": [*relabelings, *named]}


def _constant(label: str, value: str) -> dict[str, Any]:
    return {"targetLabel": label, "replacement": value}


RESOURCES: Final = {
    **dict.fromkeys(("pods", "persistentvolumeclaims"), ""),
    **dict.fromkeys(("statefulsets", "deployments"), "apps"),
    "cronjobs": "batch",
}
"""What kube-state-metrics lists and watches, with the API group of each."""


def kube_metrics() -> tuple[str, ...]:
    """What dashboards and alerts ask it for. It makes no others: of each pod it knows some sixty."""
    shown = (query.expression for board in BOARDS for panel in board.panels() for query in panel.queries)
    return tuple(sorted({*re.findall(r"\bkube_\w+", " ".join((*shown, *(alert.expression for alert in ALERTS))))}))


_OURS = re.compile(r"\b((?:slurm|slurmstack|cgroup|kube)_\w+|up(?=\{))(\{)?")
"""A metric of a cluster in PromQL, and whether matchers follow. `up`: whether a target could be read."""


def of_cluster(expression: str, config: ClusterConfig) -> str:
    """PromQL for this cluster's metrics alone, where others' may be in the same Prometheus (`monitoring.existing`).

    The Prometheus operator notes the namespace of all that it has read; kube-state-metrics names that of each object,
    which its chart keeps. Metrics of machines and of GPUs are read where
    these run, in other namespaces, and stay as they are.
    """
    if config.monitoring.existing is None:
        return expression
    matcher = f'namespace="{config.cluster.namespace}"'
    return _OURS.sub(lambda found: f"{found[1]}{{{matcher}{',' if found[2] else '}'}", expression)


def is_private(config: ClusterConfig) -> bool:
    """Whether not everybody may see all of Slurm's records (`PrivateData`), or its metrics (`MetricsAuthUsers`)."""
    settings = folded(config.slurm.settings)
    value = settings.get("privatedata", "")
    return "metricsauthusers" in settings or (bool(value) and str(value).lower() != "none")
