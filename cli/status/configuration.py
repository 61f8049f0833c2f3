"""Which configuration is in force, by the configuration agent beside slurmctld."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cli.kubectl.client import Kubectl, in_controller
from config.cluster import ClusterConfig
from slurm.names import CONFIG_MAP

STATE_FILE = "/run/slurmstack/configuration.json"
"""Where the agent writes what it knows (images/controller/agent.py)."""


def configuration_state(kubectl: Kubectl, namespace: str) -> dict[str, Any] | None:
    """Hashes of the `active` and the `pending` configuration, and what was `rejected`; None without an answer.

    Not by way of the agent's port and the API server: network policies keep that away.
    """
    answer = in_controller(kubectl, namespace, "cat", STATE_FILE, seconds=20)
    if answer.returncode != 0:
        return None
    state: dict[str, Any] = json.loads(answer.stdout)
    return state


def describe_configuration(
    kubectl: Kubectl, config: ClusterConfig, wanted: str, state: Mapping[str, Any] | None
) -> str:
    """The configuration in force, as the agent's state has it, compared with the wanted one, a hash, in words."""
    if state is None:
        return "unknown"
    rejected = state.get("rejected")
    if state.get("active") == wanted:
        if not rejected or not _is_asked_for(kubectl, config.cluster.namespace, str(rejected["hash"])):
            return "active"
        return f"active (a later one was rejected: {rejected['message']}; run `up`)"
    if rejected:
        return f"rejected: {rejected['message']}"
    return "pending" if state.get("pending") else "other than the stack file"


def _is_asked_for(kubectl: Kubectl, namespace: str, hash_: str) -> bool:
    """Whether the cluster is still asked for this configuration: the agent also remembers one that is long gone."""
    from slurm.conf import config_hash  # noqa: PLC0415  see `read_status`

    found = kubectl.items("configmap", CONFIG_MAP, "-n", namespace)
    return any(config_hash(item.get("data", {})) == hash_ for item in found)
