"""The CPUs that the pod really has, as Slurm describes a node: sockets, cores, threads, and which of them it may use.

slurmd finds the sockets, cores and threads of the whole machine; a container cannot hide any of them from it, and it
binds tasks by the machine's numbers. So a node registers with the machine's topology, and the CPUs that are not the
pod's are kept out of what jobs may have (`CpuSpecList`), by Slurm's own numbers: by sockets, by cores, by threads.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from images.common.node_conf import NodeConf

SYSTEM: Final = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A machine of equal sockets with equal cores."""

    sockets: int
    cores: int
    """Of a socket."""
    threads: int
    """Of a core."""
    order: tuple[int, ...]
    """The kernel's number of each CPU, in Slurm's order."""


def read_topology(system: Path = SYSTEM) -> Topology | None:
    """What the machine has; None where its sockets or cores differ from each other, as with efficiency cores."""
    sockets: dict[int, dict[tuple[int, ...], list[int]]] = defaultdict(dict)
    for number in numbers((system / "online").read_text(encoding="ascii")):
        place = system / f"cpu{number}" / "topology"
        package = int((place / "physical_package_id").read_text(encoding="ascii"))
        siblings = tuple(numbers((place / "thread_siblings_list").read_text(encoding="ascii")))
        sockets[package].setdefault(siblings, []).append(number)
    # hwloc orders all of them by the lowest of their numbers.
    ordered = sorted((sorted(cores.values()) for cores in sockets.values()), key=lambda cores: cores[0][0])
    sizes = {len(cores) for cores in ordered}
    threads = {len(core) for cores in ordered for core in cores}
    if len(sizes) != 1 or len(threads) != 1:
        return None
    order = tuple(number for cores in ordered for core in cores for number in core)
    return Topology(sockets=len(ordered), cores=sizes.pop(), threads=threads.pop(), order=order)


def described(conf: NodeConf, topology: Topology | None, allowed: AbstractSet[int]) -> NodeConf:
    """The node's description with sockets, cores and threads, and without the CPUs that are not for jobs.

    `allowed`: the kernel's numbers of those that the container may use. Unchanged where that cannot be told: where the
    stack file gives the node more CPUs than there are, or a part of a core.
    """
    used = _whole_cores(topology, allowed, conf.cpus) if topology is not None else None
    if topology is None or used is None:
        return conf
    kept_out = [place for place, number in enumerate(topology.order) if number not in used]
    shape = (
        f"CPUs={len(topology.order)} Sockets={topology.sockets} CoresPerSocket={topology.cores} "
        f"ThreadsPerCore={topology.threads}"
    )
    if kept_out:
        shape += f" CpuSpecList={_ranges(kept_out)}"
    return replace(conf, layout=shape)


def _whole_cores(topology: Topology, allowed: AbstractSet[int], wanted: int) -> frozenset[int] | None:
    """So many allowed CPUs, the first ones; None if they are not there as whole cores."""
    cores = [topology.order[at : at + topology.threads] for at in range(0, len(topology.order), topology.threads)]
    whole = [core for core in cores if allowed >= set(core)]
    count, rest = divmod(wanted, topology.threads)
    if rest or count > len(whole):
        return None
    return frozenset(number for core in whole[:count] for number in core)


def allowed_cpus() -> frozenset[int]:
    """Those of this process."""
    return frozenset(os.sched_getaffinity(0))


def numbers(text: str) -> list[int]:
    """The numbers of a list as the kernel writes it: `0-3,8`."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _ranges(numbers: Sequence[int]) -> str:
    """The same the other way round."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
