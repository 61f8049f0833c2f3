"""What is expected of a platform: figures with their sources, `expected.json`, and what a site says itself.

    {"8x NVIDIA H200": {"nccl-node": {"busbw": {"min": 420, "unit": "GB/s", "source": "..."}}}}

A platform is a number of GPUs of a model, as `nvidia-smi` names it, or what the site calls the nodes of a pool. Where
nothing is known nothing is expected, and the figure is only told. The published minimum that is lowest is taken, as a
node is drained for it: a site that knows its machines sets a higher one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

DATA: Final = Path(__file__).with_name("expected.json")
INFINIBAND: Final = " with InfiniBand"
"""Behind the name of a platform: what two of its nodes reach over InfiniBand."""

Expected = Mapping[str, Mapping[str, Mapping[str, float]]]
"""Platform -> test -> figure -> the least that it may be, in the unit of the test."""


def load(own: Expected) -> Expected:
    """Our data and the site's own, which count where both have a figure."""
    minima = {
        platform: {test: {name: float(entry["min"]) for name, entry in figures.items()} for test, figures in of.items()}
        for platform, of in json.loads(DATA.read_text(encoding="utf-8")).items()
    }
    for platform, tests in own.items():
        for test, figures in tests.items():
            minima.setdefault(platform, {}).setdefault(test, {}).update(figures)
    return minima


def minima_of(expected: Expected, platforms: Iterable[str], test: str) -> dict[str, float]:
    """The minima of a test's figures, each from the first of the platforms for which it is known."""
    found: dict[str, float] = {}
    for platform in platforms:
        found = {**expected.get(platform, {}).get(test, {}), **found}
    return found
