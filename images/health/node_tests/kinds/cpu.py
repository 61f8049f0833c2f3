"""cpu-speed: how fast all CPUs together compute, by sysbench."""

from __future__ import annotations

from typing import Final

from images.health.node_tests.contract import CPUS, NodeTest, Place, Reading
from images.health.node_tests.kinds.lines import NUMBER, one_figure

SECONDS: Final = 20
_EVENTS: Final = "events per second"


def _command(_place: Place) -> tuple[str, ...]:
    return ("sysbench", "cpu", f"--threads={CPUS}", f"--time={SECONDS}", "--cpu-max-prime=20000", "run")


def _read(text: str) -> Reading:
    return Reading(figures={"events": one_figure(rf"^{_EVENTS}: {NUMBER}$", text)})


TEST: Final = NodeTest(
    name="cpu-speed",
    summary="primes that all CPUs find together in a second (sysbench cpu)",
    command=_command,
    keep=rf"{_EVENTS}: *[\d.]+",
    read=_read,
    units={"events": "events/s"},
    seconds=SECONDS + 20,
)
