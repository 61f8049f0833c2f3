"""Dashboards: what a query asks for, and how pages reach Grafana as Grafana reads them."""

from __future__ import annotations

import json
import re

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from slurm.dashboards.boards import BOARDS
from tests.panels import figures_of
from tests.unit.slurm.pages import MODES, asked, config, pages


def test_what_only_gpus_give_is_marked_so() -> None:
    for board in BOARDS:
        for panel in board.panels():
            of_gpus = any(
                "gpu" in name or "DCGM" in name for query in panel.queries for name in figures_of(query.expression)
            )
            assert of_gpus == (panel.needs in {"gpus", "dcgm"}), panel.title


@pytest.mark.parametrize("mode", MODES)
def test_grafana_s_own_types_read_each_page_and_write_the_same(mode: str) -> None:
    for page in pages(config(mode)).values():
        again = json.loads(JSONEncoder().encode(Dashboard.from_json(page)))
        assert again == page


def test_two_clusters_in_one_prometheus_and_one_grafana_are_apart() -> None:
    one, other = pages(config("existing", "one")), pages(config("existing", "a" * 63))
    assert not one.keys() & other.keys()
    assert not {page["uid"] for page in one.values()} & {page["uid"] for page in other.values()}
    assert all(len(page["uid"]) <= 40 for page in other.values())
    ours = [expr for expr in asked(config("existing", "one")) if re.search("slurm_|cgroup_|kube_", expr)]
    assert ours
    assert all('namespace="one"' in expr for expr in ours)
    assert 'label_values(slurm_node_cpus{namespace="one"}, node)' in json.dumps(one).replace('\\"', '"')
    assert not [expr for expr in asked(config()) if "namespace" in expr]
