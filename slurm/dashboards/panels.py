"""What a dashboard is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

Kind = Literal["line", "stack", "number", "state", "table"]
"""line and stack: over time, side by side or on each other. number: the latest. state: 1 and 0 as words. table: the
latest, a row a series."""

Needs = Literal["accounting", "gpus", "dcgm", "machines", "infiniband", "kube_state", "cgroups"]
"""What a cluster must have, or its Prometheus must read, or else a panel is empty."""

NEEDS: Final[dict[Needs, str]] = {
    "accounting": "Only with accounting.",
    "gpus": "Only with GPUs.",
    "dcgm": "From NVIDIA's DCGM exporter, which this Prometheus has to read, too.",
    "machines": "From node exporters: of monitoring.nodes, or those that this Prometheus reads besides.",
    "kube_state": "From kube-state-metrics: of monitoring.kube_state, or one that this Prometheus reads besides.",
    "infiniband": "From node exporters, on machines with InfiniBand.",
    "cgroups": "From workers whose machines have version 2 of cgroups.",
}
"""The same in words, for who looks at the panel."""

RATE: Final = "$__rate_interval"
"""The range of a rate, which Grafana puts in."""

_STRING = re.compile(r'"[^"]*"')
_SELECTED = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)")
_NAME = re.compile(r"\b[a-zA-Z_]\w*\b(?!\s*\()")
_WORDS = frozenset({"and", "or", "unless", "bool", "by", "on", "offset"})


@dataclass(frozen=True)
class Query:
    """One question to Prometheus."""

    expression: str
    """PromQL, perhaps with variables of the dashboard (`$node`) and `RATE`."""
    legend: str = ""
    """Name of each series, with its labels as `{{label}}`."""

    @property
    def figures(self) -> frozenset[str]:
        """Names of the figures that it asks for."""
        bare = _SELECTED.sub(" ", _STRING.sub("", self.expression))
        return frozenset(name for name in _NAME.findall(bare) if name not in _WORDS)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture."""

    title: str
    queries: tuple[Query, ...]
    kind: Kind = "line"
    unit: str = "short"
    """As Grafana calls it."""
    width: int = 8
    """Of 24 columns."""
    needs: Needs | None = None
    explained: str = ""
    """What is good to know, also when it is empty although all is well."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """Panels below a heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, kw_only=True)
class Board:
    """One dashboard."""

    name: str
    """In file names and in its address."""
    title: str
    rows: tuple[Row, ...]
    variables: dict[str, str] = field(default_factory=dict)
    """Name of a variable -> figure and label whose values it has: `slurm_node_cpus, node`."""

    def panels(self) -> Iterator[Panel]:
        """All, from top to bottom."""
        for row in self.rows:
            yield from row.panels
