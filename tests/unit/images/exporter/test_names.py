"""The names that the exporter gives are those that somebody reads, and those that docs/metrics.md has."""

from __future__ import annotations

import re

from images.dashboard.plots import _USE
from images.exporter.names import OURS, SLURMS
from slurm.alerts import ALERTS
from slurm.dashboards.boards import BOARDS
from slurm.dashboards.panels import Query
from tests.stacks import ROOT


def test_what_alerts_dashboards_and_the_web_page_ask_for_is_given_and_nothing_else_of_slurms() -> None:
    expressions = [
        *(alert.expression for alert in ALERTS),
        *(query.expression for board in BOARDS for panel in board.panels() for query in panel.queries),
        *(variable.partition(",")[0] for board in BOARDS for variable in board.variables.values()),
        *(query for queries in _USE.values() for query in queries.values()),
    ]
    asked = {name for expression in expressions for name in Query(expression).figures}
    assert {name for name in asked if name.startswith("slurm_")} == set(SLURMS)
    others = ("slurmstack_health_", "slurmstack_machine_")  # of workers and node exporters
    assert {name for name in asked if name.startswith("slurmstack_") and not name.startswith(others)} <= set(OURS)


def test_each_name_is_in_the_documentation() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    several = re.findall(r"`(slurm_\w*){([a-z_,]+)}`", page)
    written = {*re.findall(r"`(\w+)[`{]", page), *(one + name for one, names in several for name in names.split(","))}
    assert {name for name in written if name.startswith("slurm_") and not name.endswith("_")} == set(SLURMS)
    assert {name.removeprefix("slurmstack_") for name in OURS} <= written
