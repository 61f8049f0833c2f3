"""kube-state-metrics: what Kubernetes says of the cluster's own pods and volumes, as figures."""

from __future__ import annotations

import re
from typing import Final

from slurm.alerts import ALERTS
from slurm.dashboards.boards import BOARDS

RESOURCES: Final = {
    "pods": "",
    "persistentvolumeclaims": "",
    "statefulsets": "apps",
    "deployments": "apps",
    "daemonsets": "apps",
    "cronjobs": "batch",
}
"""What it lists and watches, with the API group of each."""

PREFIX: Final = "kube_"


def kube_figures() -> tuple[str, ...]:
    """What dashboards and alerts ask it for. It makes no others: of each pod it knows some sixty."""
    queries = [query for board in BOARDS for panel in board.panels() for query in panel.queries]
    asked = {name for query in queries for name in query.figures if name.startswith(PREFIX)}
    return tuple(sorted(asked.union(*(re.findall(rf"\b{PREFIX}\w+", alert.expression) for alert in ALERTS))))
