"""Which figures of Slurm come from where, and who may see whose."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from config.cluster import ClusterConfig
from config.sections.monitoring import Otlp
from config.sections.slurm import folded
from slurm.names import LOG_SHIPPER

PATHS = ("/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/scheduler")
"""Of slurmctld, on its own port. /metrics itself is only a list of them.

/metrics/jobs-users-accts is not among them: users choose the name of their account, and slurmctld writes it as it is
(26.05, src/plugins/metrics/openmetrics/openmetrics.c, _dump_metric_no_desc). A quotation mark in one, or thousands of
them, would keep all of it from Prometheus, and what follows a new line would be anything. The exporter gives running
jobs by account.
"""

_WITH_METRICS = ("26.05",)
"""Versions with `MetricsType`."""


_OURS = re.compile(r"\b((?:slurm|slurmstack|cgroup|kube)_\w+|up(?=\{))(\{)?")
"""A figure of a cluster in PromQL, and whether matchers follow. `up`: whether a target could be read."""


def of_cluster(expression: str, config: ClusterConfig) -> str:
    """PromQL for this cluster's figures alone, where others' may be in the same Prometheus (`monitoring.existing`).

    The Prometheus operator notes the namespace of all that it has read; kube-state-metrics names that of each object,
    which its chart keeps. Figures of machines and of GPUs are read where
    these run, in other namespaces, and stay as they are.
    """
    if config.monitoring.existing is None:
        return expression
    matcher = f'namespace="{config.cluster.namespace}"'
    return _OURS.sub(lambda found: f"{found[1]}{{{matcher}{',' if found[2] else '}'}", expression)


def is_private(config: ClusterConfig) -> bool:
    """Whether not everybody may see all of Slurm's records (`PrivateData`), or its figures (`MetricsAuthUsers`)."""
    settings = folded(config.slurm.settings)
    value = settings.get("privatedata", "")
    return "metricsauthusers" in settings or (bool(value) and str(value).lower() != "none")


def asks_who(config: ClusterConfig) -> bool:
    """Whether slurmctld would give its figures only to those who prove who they are, which no Prometheus does.

    With `PrivateData`, unless MetricsParameters has ignore_private_data, and with MetricsAuthUsers (26.05.3,
    src/common/read_config.c).
    """
    settings = folded(config.slurm.settings)
    ignores = "ignore_private_data" in str(settings.get("metricsparameters", "")).lower()
    return is_private(config) and not (ignores and "metricsauthusers" not in settings)


def slurmctld_gives_figures(config: ClusterConfig) -> bool:
    """Whether slurmctld itself gives its figures; else the exporter gives those that are used, by the same names."""
    return config.monitoring.is_on and config.slurm.version in _WITH_METRICS and not asks_who(config)


def names_people(config: ClusterConfig) -> bool:
    """Whether figures name users and accounts: where anybody may see these, or slurmctld would tell anybody itself."""
    return not is_private(config) or slurmctld_gives_figures(config)


CONFIG_DIR: Final = "/config/collector"
CONFIG_FILE: Final = "collector.yaml"
POD_LOGS: Final = "/var/log/pods"
"""Where kubelet keeps the logs of a machine's pods: NAMESPACE_POD_UID/CONTAINER/RESTARTS.log."""
POSITIONS: Final = "/positions"

_LEVELS: Final = r"fatal|error|warning|notice|info|verbose|debug"
_PROGRAM: Final = r"^(?P<program>[\w.-]+): "
"""As Slurm's daemons and our programs begin a line (docs/diagnose.md)."""
_LEVEL: Final = rf"^[\w.-]+: (?P<level>(?i:{_LEVELS}))\d?: "
_JOB: Final = r"(?:\b(?:JobId|StepId)=|\bjob |\[)(?P<job>\d+)"
_SEVERITY: Final = {"fatal": "fatal", "error": "error", "warn": "warning", "info": ["info", "notice"], "debug": "debug"}


def header_variable(number: int) -> str:
    """Environment variable with the content of a header."""
    return f"HEADER_{number}"


def collector_file(config: ClusterConfig, otlp: Otlp) -> str:
    """The collector's configuration."""
    namespace = config.cluster.namespace
    headers = {name: f"${{env:{header_variable(number)}}}" for number, name in enumerate(otlp.headers)}
    document = {
        "extensions": {"file_storage": {"directory": POSITIONS}},
        "receivers": {
            "filelog": {
                "include": [f"{POD_LOGS}/{namespace}_*/*/*.log"],
                # What it complains about itself would be the next to be sent. By its container, which no other pod has:
                # pools may be called as they like, `log-shipper-gpu` too.
                "exclude": [f"{POD_LOGS}/{namespace}_*/{LOG_SHIPPER}/*.log"],
                "include_file_path": True,
                "include_file_name": False,
                "start_at": "beginning",
                "storage": "file_storage",
                "resource": {
                    "k8s.node.name": "${env:NODE}",
                    "k8s.cluster.name": config.slurm.cluster_name,
                    "service.namespace": namespace,
                },
                "operators": _operators(),
            }
        },
        "exporters": {
            "otlphttp": {
                "endpoint": otlp.endpoint,
                **({"headers": headers} if headers else {}),
                # A server that is away for a day gets all that Kubernetes has kept until then: nothing is given up, and
                # nothing is read meanwhile.
                "retry_on_failure": {"max_elapsed_time": "0s"},
                "sending_queue": {"storage": "file_storage", "block_on_overflow": True, "queue_size": 1000},
            }
        },
        "service": {
            "extensions": ["file_storage"],
            "pipelines": {"logs": {"receivers": ["filelog"], "exporters": ["otlphttp"]}},
            # It would open a port for its own figures.
            "telemetry": {"metrics": {"level": "none"}},
        },
    }
    return json.dumps(document, indent=2) + "\n"


def _operators() -> list[dict[str, Any]]:
    """Pod and container from the path, time and text from the runtime's line; level and job from the text."""
    return [
        {"type": "container", "format": "containerd", "add_metadata_from_filepath": True},
        {"type": "copy", "from": 'resource["k8s.container.name"]', "to": 'resource["service.name"]'},
        _from_text(_PROGRAM),
        {**_from_text(_LEVEL), "severity": {"parse_from": "attributes.level", "mapping": _SEVERITY}},
        _from_text(_JOB),
    ]


def _from_text(regex: str) -> dict[str, Any]:
    """Attributes by the names of the groups, of a line that has them."""
    return {"type": "regex_parser", "regex": regex, "parse_from": "body", "on_error": "send_quiet"}
