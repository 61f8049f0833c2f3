"""Slurm's switch tree, from labels of the Kubernetes nodes: who is near to whom on the network.

The labels name a node's switches from the core of the network to the node, so their values are a path. Each path
becomes a leaf switch, each beginning of a path a switch above it, and one root joins all: a job may then use any nodes,
and gets near ones where it can.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from images.common.slurm_records import compress

TOPOLOGY_CONF: Final = "topology.conf"
"""The one file of Slurm's configuration that is not in the ConfigMap: the agent makes it."""

LABELS_FILE: Final = "topology.labels"
"""File of the ConfigMap that asks for a tree: keys of labels, one a line, from the core of the network to the node."""

ROOT: Final = "root"
UNKNOWN: Final = "unknown"
"""Leaf switch of the nodes of which no label is known, and what stands for a single label that is missing."""

LONGEST_NAME: Final = 40
"""Of a switch. Slurm takes 64 characters; with 200 slurmctld does not start (measured with 24.11 and 26.05)."""

UNPLACED: Final = "unplaced"
"""Behind the pool's name: leaf switch of the nodes of an elastic pool that have no machine, or one without labels."""

_NO_NODE: Final = "none"
"""Slurm has no empty leaf switch, and 26.05 does not start without any switch (measured). Nodes are named
`<pool>-<number>`, so none has this name."""

Path = tuple[str, ...]
"""Values of a node's labels, from the core to the node; empty: none is known."""


def label_keys(text: str) -> tuple[str, ...]:
    """The keys in `LABELS_FILE`."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def path_of(labels: Mapping[str, str], keys: Iterable[str]) -> Path:
    """Where a node with these labels is."""
    values = tuple(labels.get(key, "") for key in keys)
    return tuple(value or UNKNOWN for value in values) if any(values) else ()


def unplaced(node: str) -> Path:
    """Where a node of an elastic pool is as long as nobody knows: beside the others of its pool, as it takes jobs."""
    return (f"{node.rpartition('-')[0]}-{UNPLACED}",)


def switch_name(path: Path) -> str:
    """A name that depends on the path alone, so that it stays when other switches come and go.

    The labels themselves where that is short and cannot be taken for another path; else the last one and a digest.
    """
    joined = ".".join(path)
    clear = not any("." in value for value in path) and joined not in {ROOT, UNKNOWN}
    if clear and len(joined) <= LONGEST_NAME:
        return joined
    digest = hashlib.sha256("\0".join(path).encode()).hexdigest()[:8]
    return f"{path[-1][: LONGEST_NAME - 9]}-{digest}"


def render(places: Mapping[str, Path]) -> str:
    """topology.conf for nodes at these places. The same places always give the same bytes."""
    leaves: dict[Path, list[str]] = {}
    for node, path in places.items():
        leaves.setdefault(path, []).append(node)
    below: dict[Path, set[Path]] = {}
    for path in leaves:
        for depth in range(len(path)):
            below.setdefault(path[:depth], set()).add(path[: depth + 1])
    unlabelled = leaves.pop((), [] if leaves else [_NO_NODE])

    lines = ["# Made by config-agent from labels of the Kubernetes nodes: changes made here are lost."]
    lines += [f"SwitchName={switch_name(path)} Nodes={compress(leaves[path])}" for path in sorted(leaves)]
    if unlabelled:
        lines.append(f"SwitchName={UNKNOWN} Nodes={compress(unlabelled)}")
    tops = [switch_name(path) for path in sorted(below.pop((), set()))]
    inner = sorted(below, key=lambda path: (-len(path), path))
    lines += [f"SwitchName={switch_name(path)} Switches={_switches(below[path])}" for path in inner]
    lines.append(f"SwitchName={ROOT} Switches={','.join([*tops, *([UNKNOWN] if unlabelled else [])])}")
    return "\n".join(lines) + "\n"


def _switches(paths: Iterable[Path]) -> str:
    return ",".join(switch_name(path) for path in sorted(paths))
