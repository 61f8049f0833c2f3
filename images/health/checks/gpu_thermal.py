"""gpu-thermal: temperatures, and clocks that the hardware has lowered to protect itself."""

from __future__ import annotations

from typing import Final

from images.common.command import Runner
from images.health.contract import Check, Node, Result, Thresholds
from images.health.nvidia import smi
from images.health.state import held_for
from images.health.verdict import UnknownError, fail, not_checked, ok, or_not_checked, warn

NAME: Final = "gpu-thermal"

HW_SLOWDOWN: Final = 0x8
SW_THERMAL: Final = 0x20
HW_THERMAL: Final = 0x40
HW_POWER_BRAKE: Final = 0x80
"""Bits of the clocks' event reasons, from nvml.h (nvmlClocksEventReason...). The first one is also set for a moment
while the GPU changes its performance state, so it has to be seen in several runs."""

_SLOW: Final = {
    HW_POWER_BRAKE: "power brake (the machine's power supply asks for it)",
    HW_THERMAL: "too hot (hardware)",
}

SLOW_SECONDS: Final = 20.0
"""Hardware that has slowed down for so long, in every look, is a fault; before that a warning. Less than the 30 s
between two runs, more than the time for which several looks see the same answer (smi.FRESH_SECONDS)."""

WARN_CELSIUS: Final = 90.0
"""For GPUs that do not tell their own limit. Those slow down between 83 and 95 °C, depending on the type; a site that
knows its type sets the limit that fits."""

WARN_MEMORY_CELSIUS: Final = 95.0
"""nvidia-smi gives 95 °C as "Memory Max Operating Temp" of A100 and H100."""


def judge(gpu: smi.Gpu, thresholds: Thresholds, slow_seconds: float) -> Result:
    """One GPU; `slow_seconds`: for how long its hardware has slowed down, as far as it has."""
    reasons = gpu.number("clocks_event_reasons.active")
    celsius = gpu.number("temperature.gpu")
    margin = gpu.number("temperature.gpu.tlimit")
    memory = gpu.number("temperature.memory")
    if reasons is None and celsius is None and margin is None:
        return not_checked("tells neither temperature nor reasons for slow clocks")
    label = f'{{gpu="{gpu.index}"}}'
    figures = {"temperature": celsius, "memory_temperature": memory}
    values = {f"gpu_{name}_celsius{label}": value for name, value in figures.items() if value is not None}
    if slow := slowed(reasons):
        needed = thresholds.get(NAME, "slow_seconds", SLOW_SECONDS)
        return (fail if slow_seconds >= needed else warn)("hardware", f"slowed down: {slow}", values)
    warm = _warm(celsius, margin, memory, thresholds)
    if reasons is not None and int(reasons) & SW_THERMAL:
        warm.append("the driver lowers the clocks because of the temperature")
    if warm:
        return warn("hardware", " and ".join(warm), values)
    return ok(**values)


def slowed(reasons: float | None) -> str:
    """Why the hardware has slowed down; empty if it has not, or does not tell."""
    bits = int(reasons or 0)
    named = [text for bit, text in _SLOW.items() if bits & bit]
    if not named and bits & HW_SLOWDOWN:
        named = ["hardware slowdown (temperature or power)"]
    return ", ".join(named)


def _warm(celsius: float | None, margin: float | None, memory: float | None, thresholds: Thresholds) -> list[str]:
    texts = []
    limit = thresholds.get(NAME, "warn_celsius", WARN_CELSIUS)
    if margin is not None and margin <= 0:
        texts.append("at its temperature limit")
    elif margin is None and celsius is not None and celsius >= limit:
        texts.append(f"at or above {limit:.0f} °C")
    memory_limit = thresholds.get(NAME, "warn_memory_celsius", WARN_MEMORY_CELSIUS)
    if memory is not None and memory >= memory_limit:
        texts.append(f"memory at or above {memory_limit:.0f} °C")
    return texts


@or_not_checked
def run(node: Node, runner: Runner, thresholds: Thresholds) -> Result:
    """Look at all GPUs, and at how long they have been slow."""
    reading = smi.read(node, runner)
    slow = held_for(node, NAME, [gpu.fields["uuid"] for gpu in reading.gpus if _is_slow(gpu)])
    return smi.judged(node, reading, lambda gpu: judge(gpu, thresholds, slow.get(gpu.fields["uuid"], 0.0)))


def _is_slow(gpu: smi.Gpu) -> bool:
    try:
        return bool(slowed(gpu.number("clocks_event_reasons.active")))
    except UnknownError:
        return False  # judged as not checked


CHECK: Final = Check(
    name=NAME,
    summary="temperatures of the GPUs, and clocks that the hardware has lowered",
    run=run,
    hardware="gpu",
    seconds=smi.CHECK_SECONDS,
)
