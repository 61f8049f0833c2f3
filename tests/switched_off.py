"""A machine of the local cluster whose power is taken away; `slurmstack local restart-node` brings it back."""

from __future__ import annotations

from local import cluster, nodes


def switch_off(machine: str) -> None:
    """Stop all of its processes at once, and leave it so."""
    with cluster.exclusive():
        cluster._existing(machine)  # commands run by its tools from here on
        nodes.kill(machine)
