"""memory-bandwidth: how fast all CPUs together write to memory, by sysbench.

Each thread writes a block of its own that no cache holds. The figure is not comparable with STREAM's, which counts
other accesses.
"""

from __future__ import annotations

from typing import Final

from images.health.node_tests.contract import CPUS, NodeTest, Place, Reading
from images.health.node_tests.kinds.lines import NUMBER, one_figure

SECONDS: Final = 20
_MIB: Final = 1024 * 1024


def _command(_place: Place) -> tuple[str, ...]:
    return (
        "sysbench",
        "memory",
        f"--threads={CPUS}",
        f"--time={SECONDS}",
        "--memory-block-size=64M",
        "--memory-total-size=1000T",
        "--memory-scope=local",
        "--memory-oper=write",
        "run",
    )


def _read(text: str) -> Reading:
    return Reading(figures={"write": one_figure(rf"^transferred \({NUMBER} MiB/sec\)", text) * _MIB / 1e9})


TEST: Final = NodeTest(
    name="memory-bandwidth",
    summary="bandwidth of memory when all CPUs write to it (sysbench memory)",
    command=_command,
    keep=r"transferred \([\d.]+ MiB/sec\)",
    read=_read,
    units={"write": "GB/s"},
    seconds=SECONDS + 20,
)
