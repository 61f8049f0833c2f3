"""Whether Slurm gets a switch tree, and what the configuration agent must know to make one.

The tree itself is not made here: which node runs on which machine is known in the cluster only, and changes without an
apply (images/controller/topology.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from config.cluster import ClusterConfig

LABELS_FILE = "topology.labels"
"""Beside Slurm's own files: the labels that name a node's switches, one a line. Where it is, the agent makes
topology.conf."""

TREE = "topology/tree"


def wants_tree(config: ClusterConfig) -> bool:
    """Whether the stack file asks for a tree, or has pools on a fabric. Without one all nodes are alike to Slurm."""
    if config.topology.plugin is not None:
        return config.topology.plugin == "tree"
    return any(pool.gpu_cluster for pool in config.worker_nodes.values())


def uses_tree(settings: Mapping[str, str]) -> bool:
    """Whether slurm.conf with these settings, the user's own included, asks for a tree."""
    return any(key.lower() == "topologyplugin" and value.lower() == TREE for key, value in settings.items())


def topology_files(config: ClusterConfig, settings: Mapping[str, str]) -> dict[str, str]:
    """The file for the configuration agent, where there is a tree to make."""
    if not uses_tree(settings):
        return {}
    return {LABELS_FILE: "".join(f"{label}\n" for label in config.topology.labels)}
