"""Where the figures come from: one question to each source a round, and how its answer is read."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from images.common.command import Runner, run
from images.common.slurm_jobs import ENVIRONMENT, Job, JobList
from images.common.slurm_records import NodeRecord, entries_in, node_records, text_of
from images.controller.configuration import config_hash, read_files

QUESTION_SECONDS: Final = 25.0
"""For one command of Slurm's. An overloaded slurmctld lets them wait and say nothing until then."""

_BOUND: Final = ("prlimit", "--core=0", f"--as={1 << 30}")
"""Users write into what squeue reads, tens of kB a job, and must not fill the exporter."""
NODES: Final = ("scontrol", "show", "nodes", "--all", "--json")
PARTITIONS: Final = ("scontrol", "show", "partitions", "--all", "--json")
MUNGE: Final = ("munge", "--no-input")
SCHEDULER: Final = ("sdiag", "--json")
SLURMDBD: Final = ("sacctmgr", "ping")


class SourceError(Exception):
    """A command has failed, and how."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The questions. Each raises what it meets: SourceError, or what comes of an answer that is not understood."""

    runner: Runner = run
    agent_url: str = "http://controller-0:8817"
    mounted: Path = Path("/config/slurm")
    """The files as the stack has them now."""

    def jobs(self) -> list[Job]:
        """Every job that has not ended or is completing, in all partitions."""
        question = JobList("id", "state", "reason", "partitions", "account", "eligible", "restarts")
        return list(question.read(self._ask((*_BOUND, *question.command))))

    def nodes(self) -> list[NodeRecord]:
        """Every node, also those of hidden partitions."""
        return node_records(self._ask(NODES), NodeRecord)

    def partitions(self) -> list[str]:
        """Names of every partition."""
        return [text_of(entry.get("name")) for entry in entries_in(self._ask(PARTITIONS), "partitions")]

    def scheduler(self) -> Mapping[str, Any]:
        """What `sdiag` has, but calls by type and user."""
        statistics: Mapping[str, Any] = json.loads(self._ask(SCHEDULER))["statistics"]
        return statistics

    def munge(self) -> None:
        """The munged of this pod answers."""
        self._ask(MUNGE)

    def slurmdbd(self) -> None:
        """It answers, which it does not without its database (24.11 and 26.05)."""
        answer = self._ask(SLURMDBD).strip()
        if not answer.endswith("UP"):
            raise SourceError(answer)

    def configuration(self) -> Mapping[str, float | None]:
        """What the configuration agent says of what is in force, and of the volume with slurmctld's state."""
        status = self._get("config")
        # The agent remembers a refusal, also when others have been taken since.
        refused = (status.get("rejected") or {}).get("hash") == config_hash(read_files(self.mounted))
        return {**self._get("store"), "refused": refused}

    def _ask(self, command: tuple[str, ...]) -> str:
        env = {**os.environ, **ENVIRONMENT, "SLURM_JSON": "compact"}  # text without line breaks is a third shorter
        result = self.runner(command, timeout=QUESTION_SECONDS, env=env)
        if not result.ok:
            raise SourceError(f"{' '.join(command)}: {result.message}")
        return result.stdout

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.agent_url}/{path}", timeout=5) as response:  # noqa: S310 - our own pod
            found: dict[str, Any] = json.load(response)
        return found
