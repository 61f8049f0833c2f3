"""Pages of the dashboards of a stack, as Grafana gets them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from config import load_config
from config.cluster import ClusterConfig
from slurm.dashboards.boards import RATE
from slurm.dashboards.grafana import dashboard_files
from tests import stacks
from tests.stacks import with_change

MODES: dict[str, dict[str, Any]] = {
    "install": {"install": True, "dashboards": True},
    "existing": {"existing": {"namespace": "monitoring"}},
}


def config(mode: str = "install", namespace: str = "slurm") -> ClusterConfig:
    sections = with_change(stacks.existing(), "monitoring", MODES[mode])
    return load_config(with_change(sections, "cluster", {"namespace": namespace}))


def pages(given: ClusterConfig) -> dict[str, dict[str, Any]]:
    return {name: json.loads(text) for name, text in dashboard_files(given).items()}


def asked(given: ClusterConfig) -> Iterator[str]:
    """All queries, with what Grafana puts into them."""
    for page in pages(given).values():
        for panel in page["panels"]:
            for target in panel.get("targets", ()):
                yield target["expr"].replace(RATE, "2m").replace("$node", ".*").replace("$job", ".*")
