"""The configuration agent beside slurmctld, by way of the API server."""

from __future__ import annotations

import json
from typing import Any

from cli.kubectl import Kubectl
from slurm.names import AGENT_PORT, CONTROLLER_HOST


def configuration_state(kubectl: Kubectl, namespace: str) -> dict[str, Any] | None:
    """Hashes of the `active` and the `pending` configuration, and what was `rejected`; None without an answer.

    There may be none where a network policy keeps the API server from the agent.
    """
    path = f"/api/v1/namespaces/{namespace}/services/{CONTROLLER_HOST}:{AGENT_PORT}/proxy/config"
    answer = kubectl.run("get", "--raw", path, check=False)
    if answer.returncode != 0:
        return None
    state: dict[str, Any] = json.loads(answer.stdout)
    return state
