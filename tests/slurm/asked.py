"""Slurm of a sandbox, asked with its own commands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.slurm.sandbox import SlurmSandbox


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A cluster in a sandbox."""

    sandbox: SlurmSandbox

    def run(self, command: str, *, pod: str = "controller-0") -> str:
        """What a command that has to succeed prints."""
        done = self.sandbox.run(command, pod=pod)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def node(self, name: str) -> dict[str, Any]:
        """A node's record."""
        nodes = json.loads(self.run("scontrol show nodes --json"))["nodes"]
        found: dict[str, Any] = next(node for node in nodes if node["name"] == name)
        return found
