"""The configuration agent beside slurmctld."""

from __future__ import annotations

import json
from typing import Any

from cli.kubectl import Kubectl, in_controller

STATE_FILE = "/run/slurmstack/configuration.json"
"""Where the agent writes what it knows (images/controller/server.py)."""


def configuration_state(kubectl: Kubectl, namespace: str) -> dict[str, Any] | None:
    """Hashes of the `active` and the `pending` configuration, and what was `rejected`; None without an answer.

    Not by way of the agent's port and the API server: network policies keep that away.
    """
    answer = in_controller(kubectl, namespace, "cat", STATE_FILE, seconds=20)
    if answer.returncode != 0:
        return None
    state: dict[str, Any] = json.loads(answer.stdout)
    return state
