"""Which figures of Slurm come from where, and who may see whose."""

from __future__ import annotations

import re

from config.cluster import ClusterConfig
from config.sections.slurm import folded

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


def slurmctld_gives_figures(config: ClusterConfig) -> bool:
    """Whether slurmctld itself gives its figures; else the exporter gives those that are used, by the same names.

    Of private ones slurmctld asks who somebody is, which no Prometheus proves (26.05.3, src/common/read_config.c).
    """
    return config.monitoring.is_on and config.slurm.version in _WITH_METRICS and not is_private(config)
