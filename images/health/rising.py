"""By how much counters rose lately: a counter that began with the driver says nothing about now."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from images.health.contract import Node
from images.health.remembered import recall, remember

QUIET_SECONDS: Final = 600.0

_HOUR: Final = 3600.0
_SAMPLE_SECONDS: Final = 300.0
"""How old the last kept figures are when new ones are kept: 12 an hour."""


@dataclass(frozen=True, kw_only=True)
class Rise:
    """Counter -> by how much it rose."""

    hour: Mapping[str, int]
    """Since the oldest remembered figures of the last hour; a restart of the pod forgets them."""
    recent: Mapping[str, int]
    """Since those of about `QUIET_SECONDS` ago; what is remembered is less than `_SAMPLE_SECONDS` away from it."""


def rises(node: Node, name: str, now_at: Mapping[str, Mapping[str, int]]) -> dict[str, Rise]:
    """What rose, by device. `name`: the check's; `now_at`: device -> counter -> its value."""
    now = time.time()
    before = recall(node, name)
    found: dict[str, Rise] = {}
    kept: dict[str, Any] = {}
    for device, counters in now_at.items():
        samples = [each for each in _samples(before.get(device)) if 0 <= now - each[0] <= _HOUR]
        if any(counters.get(counter, 0) < count for _, figures in samples for counter, count in figures.items()):
            samples = []  # set back to 0, by hand or by a new start of the driver
        first = samples[0][1] if samples else {}
        before_it = [figures for when, figures in samples if now - when >= QUIET_SECONDS]
        found[device] = Rise(hour=_rise(counters, first), recent=_rise(counters, before_it[-1] if before_it else first))
        if not samples or now - samples[-1][0] >= _SAMPLE_SECONDS:
            samples.append((now, dict(counters)))
        kept[device] = samples
    if kept != {device: _samples(value) for device, value in before.items()}:
        remember(node, name, kept)
    return found


def _rise(counters: Mapping[str, int], first: Mapping[str, int]) -> dict[str, int]:
    return {counter: count - first.get(counter, count) for counter, count in counters.items()}


def _samples(value: Any) -> list[tuple[float, dict[str, int]]]:
    try:
        return [(float(when), {str(name): int(count) for name, count in figures.items()}) for when, figures in value]
    except (AttributeError, TypeError, ValueError):
        return []
