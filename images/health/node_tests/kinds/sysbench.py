"""cpu-speed and memory-bandwidth: how fast all CPUs together compute, and write to memory, by sysbench.

For the memory each thread writes a block of its own that no cache holds. The figure is not comparable with STREAM's,
which counts other accesses.
"""

from __future__ import annotations

from typing import Final

from images.health.node_tests.contract import CPUS, NodeTest, Place, Reading
from images.health.node_tests.kinds.lines import NUMBER, one_figure

SECONDS: Final = 20
_EVENTS: Final = "events per second"
_MIB: Final = 1024 * 1024
_ALL_CPUS: Final = (f"--threads={CPUS}", f"--time={SECONDS}")
_MEMORY: Final = ("--memory-block-size=64M", "--memory-total-size=1000T", "--memory-scope=local", "--memory-oper=write")


def _cpu_command(_place: Place) -> tuple[str, ...]:
    return ("sysbench", "cpu", *_ALL_CPUS, "--cpu-max-prime=20000", "run")


def _memory_command(_place: Place) -> tuple[str, ...]:
    return ("sysbench", "memory", *_ALL_CPUS, *_MEMORY, "run")


def _cpu_figures(text: str) -> Reading:
    return Reading(figures={"events": one_figure(rf"^{_EVENTS}: {NUMBER}$", text)})


def _memory_figures(text: str) -> Reading:
    return Reading(figures={"write": one_figure(rf"^transferred \({NUMBER} MiB/sec\)", text) * _MIB / 1e9})


CPU: Final = NodeTest(
    name="cpu-speed",
    summary="primes that all CPUs find together in a second (sysbench cpu)",
    command=_cpu_command,
    keep=rf"{_EVENTS}: *[\d.]+",
    read=_cpu_figures,
    units={"events": "events/s"},
    seconds=SECONDS + 20,
)

MEMORY: Final = NodeTest(
    name="memory-bandwidth",
    summary="bandwidth of memory when all CPUs write to it (sysbench memory)",
    command=_memory_command,
    keep=r"transferred \([\d.]+ MiB/sec\)",
    read=_memory_figures,
    units={"write": "GB/s"},
    seconds=SECONDS + 20,
)
