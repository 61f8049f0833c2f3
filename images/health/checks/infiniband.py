"""infiniband: state and rate of the InfiniBand ports, read from /sys/class/infiniband without any program.

The files are those of the kernel's Documentation/ABI/stable/sysfs-class-infiniband. Of the counters it reads how often
a link went down; those of errors are a node exporter's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.common.command import Runner
from images.common.health.contract import Check, Node, Result, fail, not_checked, ok, warn, worst
from images.health.state import recall, remember

NAME: Final = "infiniband"

_CLASS: Final = "sys/class/infiniband"

DOWNS: Final = 3
"""So often a link goes down in an hour until it is at fault; fewer are a warning. Each time ends the communication of a
job (NCCL gives up)."""
QUIET_SECONDS: Final = 600.0
"""A link that has not gone down for so long is a warning: the node was drained for it, and jobs may try it again."""
_HOUR: Final = 3600.0

_ACTIVE: Final = "4"
_LINK_UP: Final = "5"
"""Logical and physical states, from the kernel's ib_port_state and ib_port_phys_state."""


@dataclass(frozen=True, kw_only=True)
class Port:
    """One port of an InfiniBand device."""

    name: str
    """`mlx5_0`, or `mlx5_0/2` for further ports of a device."""
    kind: str
    """Board or chip: ports of the same kind should have the same rate."""
    states: str
    """Logical and physical: `INIT, LinkUp`."""
    is_active: bool
    """Whether it can carry data."""
    has_link: bool
    """A link without a subnet manager stays in INIT or ARMED: the cable and the port are fine."""
    gigabits: float
    downs: int | None
    """How often the link went down, as far as the driver has counted; None: it does not, as of a virtual function."""


def _read(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()


def _read_port(device: Path, port: Path) -> Port | None:
    """One port; None if it is not InfiniBand (Ethernet). Raises OSError, ValueError."""
    if _read(port / "link_layer") == "Ethernet":
        return None
    (logical, logical_name), (physical, physical_name) = (
        _read(port / name).split(": ", maxsplit=1) for name in ("state", "phys_state")
    )
    downs = port / "counters/link_downed"
    kind = next((device / name for name in ("board_id", "hca_type") if (device / name).exists()), None)
    return Port(
        name=device.name if port.name == "1" else f"{device.name}/{port.name}",
        kind=_read(kind) if kind else "",
        states=f"{logical_name}, {physical_name}",
        is_active=logical == _ACTIVE,
        has_link=physical == _LINK_UP,
        gigabits=float(_read(port / "rate").split()[0]),
        downs=int(_read(downs)) if downs.exists() else None,
    )


def _judge_states(ports: Sequence[Port], wanted: int) -> Result:
    """All ports have to be active; if `wanted` is above 0, that many."""
    down: dict[str, list[str]] = {}
    for port in ports:
        if not port.is_active:
            down.setdefault(port.states, []).append(port.name)
    active = sum(port.is_active for port in ports)
    if active >= wanted if wanted > 0 else not down:
        return ok()
    texts = [f"{', '.join(names)}: {states}" for states, names in down.items()]
    if wanted > 0:
        texts.insert(0, f"{active} of {wanted} ports are active")
    linked = down and all(port.has_link for port in ports if not port.is_active)
    return fail("node" if linked else "hardware", "; ".join(texts))


def _judge_rates(ports: Sequence[Port], wanted: float) -> list[Result]:
    """Rates of the active ports against `wanted` in Gbit/s; if that is 0, against the best port of the same kind."""
    active = [port for port in ports if port.is_active]
    best: dict[str, float] = {}
    for port in active:
        best[port.kind] = wanted if wanted > 0 else max(best.get(port.kind, 0.0), port.gigabits)
    slow = [port for port in active if port.gigabits < best[port.kind]]
    return [fail("hardware", f"{port.name}: {port.gigabits:g} of {best[port.kind]:g} Gbit/s") for port in slow]


def _judge_downs(node: Node, ports: Sequence[Port]) -> list[Result]:
    """How often each link went down in the last hour, or since the first look. Only what still goes on is at fault."""
    now, before, found = time.time(), recall(node, NAME), []
    kept: dict[str, list[list[float]]] = {}
    for port in ports:
        if port.downs is None:
            continue
        seen = before.get(port.name, [])  # when the counter was found changed, and what it was since then
        if not seen or port.downs < seen[-1][1]:  # set back to 0, by hand or by a new start of the driver
            seen = [[now, port.downs]]
        elif port.downs > seen[-1][1]:
            seen = [*seen, [now, port.downs]]
        old = [each for each in seen if now - each[0] > _HOUR]
        kept[port.name] = seen = [*old[-1:], *seen[len(old) :]]
        if times := port.downs - int(seen[0][1]):
            say = fail if times >= DOWNS and now - seen[-1][0] < QUIET_SECONDS else warn
            found.append(say("hardware", f"{port.name}: the link went down {times} times in the last hour"))
    if kept != before:
        remember(node, NAME, kept)
    return found


def run(node: Node, _runner: Runner) -> Result:
    """Look at all ports. What cannot be read of one hides no other."""
    try:
        devices = sorted((node.root / _CLASS).iterdir())
    except FileNotFoundError:
        return fail("hardware", "no InfiniBand: its drivers are not loaded")
    ports: list[Port] = []
    found: list[Result] = []
    for device in devices:
        for directory in sorted((device / "ports").glob("*")):
            try:
                port = _read_port(device, directory)
            except (OSError, ValueError) as error:
                found.append(not_checked(f"{device.name}/{directory.name}: {error}"))
            else:
                ports += [port] if port is not None else []
    if not ports and not found:
        return fail("hardware", f"no InfiniBand: {'the devices have Ethernet ports only' if devices else 'no device'}")
    if ports:
        found.append(_judge_states(ports, int(node.limit(NAME, "ports", 0.0))))
        found += _judge_rates(ports, node.limit(NAME, "gigabits", 0.0))
        found += _judge_downs(node, ports)
    return worst(found)


CHECK: Final = Check(name=NAME, run=run, hardware="infiniband")
