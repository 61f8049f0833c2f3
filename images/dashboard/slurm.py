"""What Slurm tells the bearer of a token: its own commands, run with SLURM_JWT, so that slurmctld decides.

Commands and not slurmrestd: a queue of 10,000 would be 80 MB of JSON for each page (24.11).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from images.common.command import run
from images.common.slurm_conf import setting
from images.common.slurm_jobs import ENVIRONMENT, Job, JobList
from images.common.slurm_records import NotUnderstoodError, node_records
from images.dashboard.views import Node

CONFIG: Final = Path("/config/slurm")
TIMEOUT_SECONDS: Final = 15.0
"""More than the 10 s (MessageTimeout) after which Slurm's commands give up by themselves."""

JOB_FIELDS: Final = (
    "id", "user", "account", "partitions", "state", "reason", "submitted", "eligible", "used", "limit", "min_nodes",
    "cpus", "node_list", "name",
)  # fmt: skip

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,1000}\.[A-Za-z0-9_-]{1,2000}\.[A-Za-z0-9_-]{1,1000}")
_REFUSED: Final = re.compile(r"authentication|access/permission denied|invalid.*(?:credential|token)", re.IGNORECASE)


class TokenRefusedError(Exception):
    """The token is not valid, or no longer."""


class SlurmAwayError(Exception):
    """Slurm does not answer; the message is the command's own."""


class Slurm:
    """Slurm as the bearer of a token sees it. All but `cluster` raises TokenRefusedError and SlurmAwayError."""

    def __init__(self, config: Path = CONFIG) -> None:
        self._config = config

    def jobs(self, token: str) -> list[Job]:
        """Jobs in the queue that the bearer may see; `PrivateData` is slurmctld's to enforce."""
        question = JobList(*JOB_FIELDS)
        try:
            return list(question.read(self._run(question.command, token)))
        except NotUnderstoodError as error:
            raise SlurmAwayError(str(error)) from error

    def nodes(self, token: str) -> list[Node]:
        """All nodes."""
        said = self._run(("scontrol", "show", "nodes", "--all", "--json"), token)
        try:
            return [] if said.startswith("No nodes") else node_records(said, Node)
        except NotUnderstoodError as error:
            raise SlurmAwayError(str(error)) from error

    def cluster(self) -> str:
        """ClusterName, as in the mounted slurm.conf."""
        files = {"slurm.conf": (self._config / "slurm.conf").read_text(encoding="utf-8", errors="replace")}
        return setting(files, "ClusterName") or "slurm"

    def _run(self, command: Sequence[str], token: str) -> str:
        if not _TOKEN.fullmatch(token):
            raise TokenRefusedError
        environment = {
            "PATH": "/usr/bin:/bin",
            "LC_ALL": "C.UTF-8",
            "SLURM_CONF": str(self._config / "slurm.conf"),
            **ENVIRONMENT,
            "SLURM_JWT": token,
        }
        done = run(command, timeout=TIMEOUT_SECONDS, env=environment)
        if done.ok:
            return done.stdout
        if _REFUSED.search(done.stderr):
            raise TokenRefusedError
        raise SlurmAwayError(done.message)
