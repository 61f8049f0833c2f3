"""`slurmstack:topology`: which nodes are near to each other on the network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.base import Section, once
from config.names import LabelKey


class Topology(Section):
    """Where Slurm learns how the network connects the nodes, so that it places a job's nodes close together."""

    plugin: Literal["none", "tree"] | None = None
    """`tree`: a tree of switches from labels of the Kubernetes nodes. `none`: all nodes are alike. Default: `tree`
    where a pool has a `gpu_cluster`, else `none`."""

    labels: Annotated[tuple[LabelKey, ...], AfterValidator(once)] = Field(
        default=("topology.nebius.com/tier-0", "topology.nebius.com/tier-1", "topology.nebius.com/tier-2"),
        min_length=1,
        max_length=8,
    )
    """Labels of the Kubernetes nodes that name their switches, from the core to the nodes."""
