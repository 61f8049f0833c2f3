"""What is expected of a platform: figures with their sources, `expected.json`, and what a site says itself.

    {"8x NVIDIA H200": {"nccl-node": {"busbw": {"min": 420, "unit": "GB/s", "source": "..."}}}}

A platform is a number of GPUs of a model, as `nvidia-smi` names it, or what the site calls the nodes of a pool. Where
nothing is known nothing is expected, and the figure is only told. The published minimum that is lowest is taken, as a
node is drained for it: a site that knows its machines sets a higher one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from images.health.node_tests.contract import NodeTest

DATA: Final = Path(__file__).with_name("expected.json")
INFINIBAND: Final = " with InfiniBand"
"""Behind the name of a platform: what two of its nodes reach over InfiniBand."""


@dataclass(frozen=True, kw_only=True)
class Minimum:
    """The least that a figure may be."""

    value: float
    unit: str
    source: str = ""


class Expected:
    """Minima by platform, test and figure."""

    def __init__(self, minima: Mapping[str, Mapping[str, Mapping[str, Minimum]]]) -> None:
        self._minima = minima

    def of(self, platforms: Iterable[str], test: NodeTest) -> dict[str, Minimum]:
        """The minima of a test's figures, each from the first of the platforms for which it is known."""
        found: dict[str, Minimum] = {}
        for platform in platforms:
            for figure, minimum in self._minima.get(platform, {}).get(test.name, {}).items():
                found.setdefault(figure, minimum)
        return found

    def below(self, own: Expected) -> Expected:
        """These and the site's own, which count where both have a figure."""
        minima = {platform: {test: dict(of) for test, of in tests.items()} for platform, tests in self._minima.items()}
        for platform, tests in own._minima.items():
            for test, figures in tests.items():
                minima.setdefault(platform, {}).setdefault(test, {}).update(figures)
        return Expected(minima)

    def platforms(self) -> list[str]:
        """All of which something is known."""
        return sorted(self._minima)

    def minima(self) -> list[tuple[str, str, str, Minimum]]:
        """Platform, test, figure and minimum, one after the other."""
        return [
            (platform, test, figure, minimum)
            for platform, tests in self._minima.items()
            for test, figures in tests.items()
            for figure, minimum in figures.items()
        ]


def parse(data: Any, tests: Mapping[str, NodeTest], where: str) -> Expected:
    """Check and take the data. A value may be `{"min", "unit", "source"}`, or the number alone, in the test's unit.

    Raises ValueError, which names the key: a slip of the pen must neither drain nodes nor go unseen.
    """
    minima: dict[str, dict[str, dict[str, Minimum]]] = {}
    for platform, of_platform in _mapping(data, where).items():
        for name, figures in _mapping(of_platform, f"{where}.{platform}").items():
            test = tests.get(name)
            if test is None:
                raise ValueError(f"{where}.{platform}: there is no test {name!r}; there are {', '.join(sorted(tests))}")
            for figure, value in _mapping(figures, f"{where}.{platform}.{name}").items():
                key = f"{where}.{platform}.{name}.{figure}"
                if figure not in test.units:
                    raise ValueError(f"{key}: there is no such figure; there are {', '.join(sorted(test.units))}")
                minimum = _minimum(value, test.units[figure], key)
                minima.setdefault(platform, {}).setdefault(name, {})[figure] = minimum
    return Expected(minima)


def load(tests: Mapping[str, NodeTest], own: Any = None) -> Expected:
    """Our data and the site's own. Raises ValueError."""
    ours = parse(json.loads(DATA.read_text(encoding="utf-8")), tests, DATA.name)
    return ours.below(parse(own or {}, tests, "expected"))


def _minimum(value: Any, unit: str, key: str) -> Minimum:
    given = _mapping(value, key) if isinstance(value, dict) else {"min": value}
    unknown = set(given) - {"min", "unit", "source"}
    if unknown:
        raise ValueError(f"{key}: {', '.join(sorted(unknown))}: allowed are min, unit and source")
    number = given.get("min")
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number < float("inf"):
        raise ValueError(f"{key}: {number!r} is no minimum")
    if given.get("unit", unit) != unit:
        raise ValueError(f"{key}: the unit is {unit!r}, not {given['unit']!r}")
    return Minimum(value=float(number), unit=unit, source=str(given.get("source", "")))


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {value!r} is no mapping")  # noqa: TRY004  (what a user wrote)
    return value
