"""The dashboards as Grafana reads them: JSON, in the classic form that every Grafana since version 10 takes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import count
from typing import Final

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    ValueMap,
    ValueMappingResult,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from config.cluster import ClusterConfig
from slurm.dashboards.boards import BOARDS, NEEDS, Board, Panel
from slurm.prometheus import of_cluster

_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
"""Whichever Prometheus is chosen on the page; at first Grafana's default one."""

_READ_EVERY: Final = "30s"
"""Least distance of points, and what Grafana makes the range of rates from: metrics are read as often."""

_HEIGHT, _LOW = 8, 4
_STATES: Final = ValueMap(
    options={
        "1": ValueMappingResult(text="up", color="green"),
        "0": ValueMappingResult(text="down", color="red"),
    }
)
_ALL: Final = VariableOption(selected=True, text="All", value="$__all")

AnyPanel = timeseries.Panel | stat.Panel | table.Panel


def dashboard_files(config: ClusterConfig) -> dict[str, str]:
    """Name of a file -> JSON. Names, and the pages' addresses, have the cluster's namespace: Grafana has one of each.

    Queries are for this cluster's metrics alone where its Prometheus reads others', too.
    """
    return {f"slurm-{config.cluster.namespace}-{board.name}.json": _json(board, config) for board in BOARDS}


def _json(board: Board, config: ClusterConfig) -> str:
    namespace = config.cluster.namespace
    # At most 40 characters, and a namespace has up to 63.
    mark = hashlib.sha256(namespace.encode()).hexdigest()[:8]
    page = (
        dashboard.Dashboard(f"{board.title} ({namespace})")
        .uid(f"slurmstack-{mark}-{board.name}")
        .tags(["slurmstack", namespace])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        .link(
            dashboard.DashboardLink("Slurm")
            .type(DashboardLinkType.DASHBOARDS)
            .tags(["slurmstack", namespace])
            .keep_time(True)
        )
    )
    for name, values in board.variables.items():
        page.with_variable(_variable(name, of_cluster(values, config)))
    number = count(1)
    for title, panels in board.rows.items():
        page.with_row(dashboard.Row(title).id(next(number)))
        for panel in panels:
            page.with_panel(_panel(panel, config).id(next(number)))
    return JSONEncoder(sort_keys=True, indent=1).encode(page.build()) + "\n"


def _variable(name: str, values: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .datasource(_SOURCE)
        .query(f"label_values({values})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(_ALL)
    )


def _panel(panel: Panel, config: ClusterConfig) -> AnyPanel:
    made: AnyPanel
    match panel.kind:
        case "table":
            made = table.Panel().with_transformation(_tidied())
        case "number" | "state":
            made = stat.Panel().mappings([_STATES] if panel.kind == "state" else [])
        case _:
            made = timeseries.Panel().min(0)
    made.title(panel.title).datasource(_SOURCE).unit(panel.unit).span(panel.width)
    made.height(_LOW if panel.kind in {"number", "state"} else _HEIGHT)
    explained = " ".join(filter(None, (panel.explained, NEEDS[panel.needs] if panel.needs else "")))
    if explained:
        made.description(explained)
    for query in _queries(panel, config):
        made.with_target(query)
    return made


def _queries(panel: Panel, config: ClusterConfig) -> Iterator[prometheus.Dataquery]:
    for number, query in enumerate(panel.queries):
        asked = prometheus.Dataquery().expr(of_cluster(query.expression, config)).ref_id(chr(ord("A") + number))
        asked.datasource(_SOURCE).legend_format(query.legend or "__auto")
        if panel.kind == "table":
            yield asked.instant().format(PromQueryFormat.TABLE)
        else:
            yield asked.range().interval(_READ_EVERY)


def _tidied() -> DataTransformerConfig:
    """Without what each row has alike."""
    names = (
        "Time", "__name__", "cluster", "container", "endpoint", "job", "namespace", "pod", "service", "step", "task",
    )  # fmt: skip
    return DataTransformerConfig(id_val="organize", options={"excludeByName": dict.fromkeys(names, True)})
