"""Figures as Prometheus reads them (its text format 0.0.4)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass
class Family:
    """All series of one name. Every figure of Slurm's is a gauge, and so are ours."""

    name: str
    help: str
    series: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)
    """Labels -> value."""

    def set(self, value: float, labels: Mapping[str, str] | None = None) -> None:
        """As Slurm does, a label without a value is left out."""
        self.series[tuple((key, text) for key, text in (labels or {}).items() if text)] = value


def exposition(families: Iterable[Family]) -> str:
    """The text of a scrape. A name without series is left out."""
    lines = []
    for family in families:
        if family.series:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} gauge"]
            lines += [f"{family.name}{_labels(labels)} {_number(value)}" for labels, value in family.series.items()]
    return "\n".join(lines) + "\n"


def _labels(labels: tuple[tuple[str, str], ...]) -> str:
    inside = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels)
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(value)
