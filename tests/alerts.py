"""Alerts, as Prometheus' own promtool judges them."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

Case = tuple[str, Mapping[str, str], bool]
"""The name of an alert, figures with one value a minute, and whether it has to be told after 100 minutes of them."""


def wrong(promtool: str, place: Path, rules: str, cases: Iterable[Case]) -> str:
    """What promtool says of the cases that are otherwise; nothing where all are so. One process judges them all."""
    tests = [_test(name, figures, told=told) for name, figures, told in cases]
    assert tests
    return _said(promtool, place, rules, tests)


def summary(promtool: str, place: Path, rules: str, name: str, figures: Mapping[str, str]) -> str:
    """What people read of the one alert of this name that is told after 100 minutes of these figures."""
    wanted = {"eval_time": "100m", "alertname": name, "exp_alerts": []}
    said = _said(promtool, place, rules, [{**_figures(figures), "alert_rule_test": [wanted]}])
    (found,) = re.findall(r'summary=("(?:[^"\\]|\\.)*")', said)
    return str(json.loads(found))


def _said(promtool: str, place: Path, rules: str, tests: list[dict[str, object]]) -> str:
    (place / "rules.yml").write_text(rules, encoding="utf-8")
    # Figures stay as they are for as long, and to look at all rules each minute takes five times the CPU.
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "5m", "tests": tests}
    (place / "test.yml").write_text(json.dumps(document), encoding="utf-8")
    command = [promtool, "test", "rules", "test.yml"]
    done = subprocess.run(command, check=False, cwd=place, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _test(name: str, figures: Mapping[str, str], *, told: bool) -> dict[str, object]:
    expression = f'(count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)) > bool 0'
    samples = [{"labels": "{}", "value": int(told)}]
    return {
        **_figures(figures),
        "promql_expr_test": [{"expr": expression, "eval_time": "100m", "exp_samples": samples}],
    }


def _figures(figures: Mapping[str, str]) -> dict[str, object]:
    return {
        "interval": "1m",
        "input_series": [{"series": series, "values": values} for series, values in figures.items()],
    }
