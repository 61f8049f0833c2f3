"""Panels of the dashboards, asked of figures that real programs have given, by Prometheus' own engine."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from slurm.dashboards.boards import BOARDS, RATE, Query

_STRING = re.compile(r'"[^"]*"')
_SELECTED = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)")
_NAME = re.compile(r"\b[a-zA-Z_]\w*\b(?!\s*\()")
_WORDS = frozenset({"and", "or", "unless", "bool", "by", "on", "offset"})


def figures_of(expression: str) -> set[str]:
    """Names of the figures that PromQL asks for."""
    return {name for name in _NAME.findall(_SELECTED.sub(" ", _STRING.sub("", expression))) if name not in _WORDS}


_SERIES = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")


def series(texts: Mapping[str, str]) -> dict[str, str]:
    """Series -> value, of pages by the `instance` under which a Prometheus has them."""
    found = {}
    for instance, text in texts.items():
        for name, labels, value in (match.groups() for match in map(_SERIES.fullmatch, text.splitlines()) if match):
            found[f'{name}{{instance="{instance}"{"," if labels else ""}{labels or ""}}}'] = value
    return found


def queries(names: Iterable[str]) -> list[str]:
    """Those of the panels that ask for nothing but figures with these names, with what Grafana puts into them.

    Without those of GPUs, which slurmctld counts only where slurmdbd knows them.
    """
    there = set(names)
    panels = [panel for board in BOARDS for panel in board.panels() if panel.needs != "gpus"]
    asked = [query for panel in panels for query in panel.queries if figures_of(query.expression) <= there]
    return [as_asked(query) for query in asked]


def as_asked(query: Query) -> str:
    """With what Grafana puts into it: figures are read each half minute."""
    return query.expression.replace(RATE, "2m").replace("$node", ".*").replace("$job", ".*")


def empty(promtool: str, place: Path, given: Mapping[str, str], asked: Iterable[str]) -> str:
    """What promtool says of those without data; nothing where all have some. Each figure stays as it is for 5 min."""
    tests = [
        {"expr": f"count({query}) > bool 0", "eval_time": "5m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for query in asked
    ]
    inputs = [{"series": name, "values": f"{value}x20"} for name, value in given.items()]
    test = {"interval": "30s", "input_series": inputs, "promql_expr_test": tests}
    (place / "panels.yml").write_text(json.dumps({"tests": [test]}), encoding="utf-8")
    command = [promtool, "test", "rules", "panels.yml"]
    done = subprocess.run(command, check=False, cwd=place, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr
