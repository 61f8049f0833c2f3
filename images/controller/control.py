"""The running slurmctld, as the config agent sees it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Final

from images.common.command import TIMED_OUT, Result, Runner, run
from images.common.readiness import can_connect
from images.common.slurm_node import PLACED, WANTED_NODES, wanted_nodes
from images.controller.configuration import SLURM_CONF

RECONFIGURE_TIMEOUT_SECONDS: Final = 60.0
PING_TIMEOUT_SECONDS: Final = 5.0
_NO_ANSWER: Final = "Socket timed out"
"""slurm_errno.c, SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT."""


@dataclass
class Slurmctld:
    """slurmctld of this pod, reached with Slurm's own commands."""

    runner: Runner = run
    _env: dict[str, str] = field(default_factory=lambda: {**os.environ, "SLURM_CONF": str(SLURM_CONF)}, init=False)

    def is_up(self) -> bool:
        """Whether it answers."""
        result = self.runner(["scontrol", "ping"], timeout=PING_TIMEOUT_SECONDS, env=self._env)
        return result.ok and " is UP" in result.stdout

    def listens(self) -> bool:
        """Whether its port is open: one that ended refuses, one that waits for slurmdbd listens without an answer."""
        return can_connect("127.0.0.1")

    def reconfigure(self) -> Result:
        """Let it read its files again. Its exit code alone says little: it is 0 when slurmctld dies of them, too.

        `TIMED_OUT` where there was no answer: scontrol has a limit of its own, MessageTimeout.
        """
        result = self.runner(["scontrol", "reconfigure"], timeout=RECONFIGURE_TIMEOUT_SECONDS, env=self._env)
        if not result.ok and _NO_ANSWER in result.stderr:
            return Result(code=TIMED_OUT, stderr=result.stderr)
        return result

    def nodes_text(self) -> str | None:
        """All node records, one a line, or None where slurmctld does not answer."""
        return self._ask("scontrol", "show", "nodes", "--oneliner")

    def queue_text(self) -> str | None:
        """Each job that has not ended, one a line, or None where slurmctld does not answer.

        Its number (of an array's tasks that of the array), its state, and its partitions.
        """
        return self._ask("squeue", "--all", "--noheader", "--format=%F %t %P")

    def records_text(self) -> str | None:
        """All job records, also of jobs that have ended a short while ago, one a line."""
        return self._ask("squeue", "--all", "--noheader", "--states=all", "--format=%A")

    def wanted_nodes(self) -> frozenset[str] | None:
        """Nodes that pending jobs ask for by name, or None where slurmctld does not answer."""
        listed = self._ask(*WANTED_NODES)
        return None if listed is None else wanted_nodes(listed)

    def _ask(self, *argv: str) -> str | None:
        result = self.runner(argv, env=self._env)
        return result.stdout if result.ok else None

    def undrain(self, nodes: str) -> Result:
        """Lift a drain, and nothing else: a node that is down stays down."""
        return self.runner(["scontrol", "update", f"nodename={nodes}", "state=undrain"], env=self._env)

    def leave_to_elastic(self, nodes: str) -> Result:
        """Leave a drain for `elastic` to lift, of nodes that are in the switch tree now."""
        return self.runner(["scontrol", "update", f"nodename={nodes}", f"reason={PLACED}"], env=self._env)

    def delete_node(self, name: str) -> Result:
        """Remove the record of a dynamic node. Slurm refuses while a job or a reservation has it."""
        return self.runner(["scontrol", "delete", f"nodename={name}"], env=self._env)

    def version(self) -> str:
        """For example `24.11.5`."""
        return self.runner(["slurmctld", "-V"]).stdout.strip().rpartition(" ")[2]
