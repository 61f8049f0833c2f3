"""Figures as Prometheus reads them (its text format 0.0.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from images.exporter.names import OURS, SLURMS

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Figures:
    """Figures by name and labels. All are gauges, as Slurm's own are."""

    def __init__(self) -> None:
        self._series: dict[str, dict[str, float]] = {}
        """Name -> labels, as they are written -> value."""

    def put(self, name: str, value: float, /, **labels: str) -> None:
        """One series. As Slurm does, a label without a value is left out. Raises KeyError for an unknown name."""
        if name not in SLURMS and name not in OURS:
            raise KeyError(name)
        self._series.setdefault(name, {})[_written(labels)] = value

    def text(self) -> str:
        """A part of a scrape: names that are in no other part."""
        lines = []
        for name, series in self._series.items():
            lines += [f"# HELP {name} {SLURMS.get(name) or OURS[name]}", f"# TYPE {name} gauge"]
            lines += [f"{name}{labels} {_number(value)}" for labels, value in series.items()]
        return "".join(f"{line}\n" for line in lines)


def _written(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items() if value)
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf"
    return str(int(value)) if float(value).is_integer() else repr(value)
