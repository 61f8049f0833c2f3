"""Results as text for Prometheus, in a file that whatever collects metrics on the node may read."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from images.common.health.contract import NAME_PREFIX, Status
from images.health.runner import Outcome

_SERIES: Final = re.compile(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-zA-Z_][a-zA-Z0-9_]*="[^\n]*"\})?')


def metrics(outcomes: Mapping[str, Outcome], at: float) -> str:
    """All figures of one run. `at`: seconds since 1970. A name that Prometheus would refuse is left out.

    `check_status` is 1 for the status that the check has and 0 for the others, so that an alert can name one.
    """
    series: dict[str, dict[str, float]] = {"last_run_timestamp_seconds": {"": float(int(at))}}
    for name, outcome in sorted(outcomes.items()):
        series.setdefault("check_seconds", {})[f'{{check="{name}"}}'] = round(outcome.seconds, 4)
        for status in Status:
            labels = f'{{check="{name}",status="{status.value}"}}'
            series.setdefault("check_status", {})[labels] = float(outcome.result.status is status)
        for given, value in outcome.result.values.items():
            match = _SERIES.fullmatch(given)
            if match and not math.isnan(value):
                series.setdefault(match[1], {})[match[2] or ""] = value
    lines = []
    for metric in sorted(series):
        lines.append(f"# TYPE {NAME_PREFIX}{metric} gauge")
        lines += [f"{NAME_PREFIX}{metric}{labels} {_number(value)}" for labels, value in series[metric].items()]
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
