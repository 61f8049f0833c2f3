"""infiniband: state, rate and errors of the InfiniBand ports, read from /sys/class/infiniband without any program.

The files are those of the kernel's Documentation/ABI/stable/sysfs-class-infiniband.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from images.common.command import Runner
from images.common.health.contract import Check, FaultClass, Node, Result, Thresholds
from images.health.state import recall, remember
from images.health.verdict import UnknownError, fail, not_checked, ok, warn, worst

NAME: Final = "infiniband"

_CLASS: Final = "sys/class/infiniband"

COUNTERS: Final = (
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
)
"""Errors of the link itself. What a busy fabric does as well (`port_xmit_discards`, `port_xmit_wait`) is no fault of
the node. Some cards stop counting at 255 or 65535 until somebody sets the counter back: nothing rises any more then."""

_DOWNED: Final = "link_downed"

WARN_ERRORS: Final = 10.0
"""New errors of one kind in an hour: the threshold in the example of ibqueryerrors(8) of infiniband-diags."""

WARN_DOWNS: Final = 1.0
FAIL_DOWNS: Final = 3.0
"""How often the link went down in an hour. Each time ends the communication of a job (NCCL gives up)."""

QUIET_SECONDS: Final = 600.0
"""A link that has not gone down for so long is a warning: the node was drained for it, and jobs may try it again."""
_HOUR: Final = 3600.0
_SAMPLE_SECONDS: Final = 300.0
"""How old the last kept figures of counters are when new ones are kept: 12 an hour."""

_STATE: Final = r"(\d): (.+)"
_RATE: Final = r"(\d{1,9}(?:\.\d+)?) Gb/sec(?: \(.*\))?"
_COUNT: Final = r"\d{1,20}"
_ACTIVE: Final = 4
_LINK_UP: Final = 5
"""Logical and physical states, from the kernel's ib_port_state and ib_port_phys_state."""


@dataclass(frozen=True, kw_only=True)
class Port:
    """One port of an InfiniBand device."""

    name: str
    """`mlx5_0`, or `mlx5_0/2` for further ports of a device."""
    kind: str
    """Board or chip: ports of the same kind should have the same rate."""
    state: int
    state_name: str
    physical: int
    physical_name: str
    gigabits: float
    counters: dict[str, int] = field(default_factory=dict)
    """Those that the kernel offers for this port; a virtual function may have none."""

    @property
    def is_active(self) -> bool:
        """Whether it can carry data."""
        return self.state == _ACTIVE


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise UnknownError(f"{path.name}: {error.strerror}") from None
    except ValueError:
        raise UnknownError(f"{path.name} is not text") from None


def _matched(pattern: str, path: Path) -> re.Match[str]:
    text = _text(path)
    match = re.fullmatch(pattern, text)
    if match is None:
        raise UnknownError(f"{path.name} is {text[:40]!r}")
    return match


def read_port(device: Path, port: Path) -> Port | None:
    """One port; None if it is not InfiniBand (Ethernet). Raises UnknownError."""
    layer = _text(port / "link_layer")
    if layer == "Ethernet":
        return None
    if layer != "InfiniBand":
        raise UnknownError(f"link_layer is {layer[:40]!r}")
    state, physical = _matched(_STATE, port / "state"), _matched(_STATE, port / "phys_state")
    counters = {}
    for counter in COUNTERS:
        path = port / "counters" / counter
        if path.exists():
            counters[counter] = int(_matched(_COUNT, path)[0])
    kind = next((device / name for name in ("board_id", "hca_type") if (device / name).exists()), None)
    return Port(
        name=device.name if port.name == "1" else f"{device.name}/{port.name}",
        kind=_text(kind) if kind else "",
        state=int(state[1]),
        state_name=state[2],
        physical=int(physical[1]),
        physical_name=physical[2],
        gigabits=float(_matched(_RATE, port / "rate")[1]),
        counters=counters,
    )


def read_ports(root: Path) -> tuple[list[Port], list[Result]]:
    """All InfiniBand ports, and what could not be read. Raises OSError where there is no list of devices."""
    ports, unread = [], []
    for device in sorted((root / _CLASS).iterdir()):
        for directory in sorted((device / "ports").glob("*")):
            try:
                port = read_port(device, directory)
            except UnknownError as error:
                unread.append(not_checked(f"{device.name}/{directory.name}: {error}"))
                continue
            if port is not None:
                ports.append(port)
    return ports, unread


def judge_states(ports: list[Port], wanted: int) -> Result:
    """All ports have to be active; if `wanted` is above 0, that many."""
    down: dict[tuple[FaultClass, str], list[str]] = {}
    for port in ports:
        if not port.is_active:
            # a link without a subnet manager stays in INIT or ARMED: the cable and the port are fine
            fault: FaultClass = "node" if port.physical == _LINK_UP else "hardware"
            down.setdefault((fault, f"{port.state_name}, {port.physical_name}"), []).append(port.name)
    active = sum(port.is_active for port in ports)
    values = {"infiniband_ports_active": float(active)}
    if active >= wanted if wanted > 0 else not down:
        return ok(**values)
    texts = [f"{', '.join(names)}: {state}" for (_, state), names in down.items()]
    if wanted > 0:
        texts.insert(0, f"{active} of {wanted} ports are active")
    faults = {fault for fault, _ in down} or {"hardware"}
    worst_fault: FaultClass = "hardware" if "hardware" in faults else "node"
    return fail(worst_fault, "; ".join(texts), values)


def judge_rates(ports: list[Port], wanted: float) -> list[Result]:
    """Rates of the active ports against `wanted` in Gbit/s; if that is 0, against the best port of the same kind."""
    best: dict[str, float] = {}
    for port in ports:
        if port.is_active:
            best[port.kind] = max(best.get(port.kind, 0.0), port.gigabits)
    found = []
    for port in ports:
        needed = wanted if wanted > 0 else best.get(port.kind, 0.0)
        if port.is_active and port.gigabits < needed:
            message = f"{port.name}: {port.gigabits:g} of {needed:g} Gbit/s"
            found.append(fail("hardware", message))
    return found


@dataclass(frozen=True, kw_only=True)
class Rise:
    """Counter -> by how much it rose: one that began with the driver says nothing about now."""

    hour: Mapping[str, int]
    """Since the oldest remembered figures of the last hour."""
    recent: Mapping[str, int]
    """Since those of about `QUIET_SECONDS` ago; what is remembered is less than `_SAMPLE_SECONDS` away from it."""


def rises(node: Node, now_at: Mapping[str, Mapping[str, int]]) -> dict[str, Rise]:
    """What rose, by device. `now_at`: device -> counter -> its value."""
    now = time.time()
    before = recall(node, NAME)
    found: dict[str, Rise] = {}
    kept: dict[str, Any] = {}
    for device, counters in now_at.items():
        samples = [each for each in before.get(device, []) if 0 <= now - each[0] <= _HOUR]
        if any(counters.get(counter, 0) < count for _, figures in samples for counter, count in figures.items()):
            samples = []  # set back to 0, by hand or by a new start of the driver
        first = samples[0][1] if samples else {}
        before_it = [figures for when, figures in samples if now - when >= QUIET_SECONDS]
        found[device] = Rise(hour=_rise(counters, first), recent=_rise(counters, before_it[-1] if before_it else first))
        if not samples or now - samples[-1][0] >= _SAMPLE_SECONDS:
            samples.append([now, dict(counters)])
        kept[device] = samples
    if kept != before:
        remember(node, NAME, kept)
    return found


def _rise(counters: Mapping[str, int], first: Mapping[str, int]) -> dict[str, int]:
    return {counter: count - first.get(counter, count) for counter, count in counters.items()}


def judge_errors(port: Port, rise: Rise, thresholds: Thresholds) -> Result:
    """What the counters of one port rose by in the last hour (or in what the check remembers of it).

    Only what rises still fails.
    """
    allowed = thresholds.get(NAME, "errors_per_hour", WARN_ERRORS)
    texts = [f"{count} {name}" for name, count in rise.hour.items() if name != _DOWNED and count > allowed]
    downs = rise.hour.get(_DOWNED, 0)
    say = warn
    if downs >= thresholds.get(NAME, "warn_downs_per_hour", WARN_DOWNS):
        texts.insert(0, f"the link went down {downs} times")
        if downs >= thresholds.get(NAME, "fail_downs_per_hour", FAIL_DOWNS) and rise.recent.get(_DOWNED, 0) > 0:
            say = fail
    values = {
        f'infiniband_errors{{port="{port.name}",kind="{name}"}}': float(count) for name, count in port.counters.items()
    }
    if not texts:
        return ok(**values)
    message = f"{port.name}: {', '.join(texts)} in the last hour"
    return say("hardware", message, values)


def _absent(node: Node, seen: str) -> Result:
    if not node.infiniband:
        return not_checked("the stack file names no InfiniBand for this node")
    return fail("hardware", f"no InfiniBand: {seen}")


def run(node: Node, _runner: Runner, thresholds: Thresholds) -> Result:
    """Look at all ports."""
    if not (node.root / "sys/class").is_dir():
        return not_checked("the kernel shows no devices (/sys/class)")
    try:
        ports, unread = read_ports(node.root)
    except FileNotFoundError:
        return _absent(node, "its drivers are not loaded")
    except OSError as error:
        return not_checked(f"cannot list the devices: {error.strerror}")
    if not ports and not unread:
        others = any((node.root / _CLASS).iterdir())
        if others:
            return not_checked("the devices have Ethernet ports only")
        return _absent(node, "there is no device")
    found = [*unread]
    if ports:
        found.append(judge_states(ports, int(thresholds.get(NAME, "ports", 0.0))))
        found += judge_rates(ports, thresholds.get(NAME, "gigabits", 0.0))
        rise = rises(node, {port.name: port.counters for port in ports})
        found += [judge_errors(port, rise[port.name], thresholds) for port in ports]
    return worst(found)


CHECK: Final = Check(
    name=NAME,
    summary="state, rate and errors of the InfiniBand ports",
    run=run,
    hardware="infiniband",
)
