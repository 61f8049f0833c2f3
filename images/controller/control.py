"""The running slurmctld, as the config agent sees it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.common.command import Result, Runner, run
from images.controller.publish import SLURM_CONF

RECONFIGURE_TIMEOUT_SECONDS: Final = 60.0
PING_TIMEOUT_SECONDS: Final = 5.0


@dataclass
class Slurmctld:
    """slurmctld of this pod, reached with Slurm's own commands."""

    runner: Runner = run
    slurm_conf: Path = SLURM_CONF
    _env: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._env = {**os.environ, "SLURM_CONF": str(self.slurm_conf)}

    def is_up(self) -> bool:
        """Whether it answers."""
        result = self.runner(["scontrol", "ping"], timeout=PING_TIMEOUT_SECONDS, env=self._env)
        return result.ok and " is UP" in result.stdout

    def reconfigure(self) -> Result:
        """Let it read its files again. Its exit code alone says little: it is 0 when slurmctld dies of them, too."""
        return self.runner(["scontrol", "reconfigure"], timeout=RECONFIGURE_TIMEOUT_SECONDS, env=self._env)

    def nodes_json(self) -> str | None:
        """All node records, or None where slurmctld does not answer."""
        result = self.runner(["scontrol", "show", "nodes", "--json"], env=self._env)
        return result.stdout if result.ok else None

    def nodes_text(self) -> str | None:
        """All node records, one a line, or None where slurmctld does not answer."""
        result = self.runner(["scontrol", "show", "nodes", "--oneliner"], env=self._env)
        return result.stdout if result.ok else None

    def undrain(self, nodes: str) -> Result:
        """Lift a drain, and nothing else: a node that is down stays down."""
        return self.runner(["scontrol", "update", f"nodename={nodes}", "state=undrain"], env=self._env)

    def delete_node(self, name: str) -> Result:
        """Remove the record of a dynamic node. Slurm refuses while a job or a reservation has it."""
        return self.runner(["scontrol", "delete", f"nodename={name}"], env=self._env)

    def version(self) -> str:
        """For example `24.11.5`."""
        return self.runner(["slurmctld", "-V"]).stdout.strip().rpartition(" ")[2]
