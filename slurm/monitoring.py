"""Which figures are a cluster's own, and who may see them."""

from __future__ import annotations

import re

from config.cluster import ClusterConfig
from config.sections.slurm import folded

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
