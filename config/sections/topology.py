"""`slurmstack:topology`: which nodes are near to each other on the network."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from config.base import Section
from config.names import LABEL_KEY


def _labels(labels: tuple[str, ...]) -> tuple[str, ...]:
    for label in labels:
        if not LABEL_KEY.fullmatch(label):
            raise ValueError(
                f"has {label!r}, which is not a label key: [prefix/]name, the name of at most 63 characters"
            )
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise ValueError(f"has {twice!r} twice: each label is one level of the network")
    return labels


class Topology(Section):
    """Where Slurm learns how the network connects the nodes, so that it places a job's nodes close together."""

    plugin: Literal["none", "tree"] | None = None
    """`tree`: a tree of switches from labels of the Kubernetes nodes. `none`: all nodes are alike. Default: `tree`
    where a pool has a `gpu_cluster`, else `none`."""

    labels: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=317)], ...], AfterValidator(_labels)] = Field(
        default=("topology.nebius.com/tier-0", "topology.nebius.com/tier-1", "topology.nebius.com/tier-2"),
        min_length=1,
        max_length=8,
    )
    """Labels of the Kubernetes nodes that name their switches, from the core to the nodes."""
