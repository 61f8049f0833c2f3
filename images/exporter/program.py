"""exporter: answers Prometheus on port 9341, path /metrics, from rounds that it makes every half minute.

A scrape starts none, however many ask: slurmctld has the same few questions to answer in any case. By /targets
Prometheus finds the workers of elastic pools that are up.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NoReturn

from images.common.command import Runner, run
from images.common.http_server import PROMETHEUS, Answer, start_server
from images.common.log import Log
from images.common.process import program
from images.common.slurm_jobs import ENVIRONMENT, Job, JobList
from images.common.slurm_records import NodeRecord, entries_in, node_records, text_of
from images.controller.configuration import config_hash, read_files
from images.exporter.metrics import Metrics, put_jobs, put_nodes, put_partitions, put_scheduler

PORT: Final = 9341
JOB_METRICS_PORT: Final = 9306
"""Of workers (slurm/names.py)."""

INTERVAL_SECONDS: Final = 30.0
"""Between the begins of two rounds."""

OLD_SECONDS: Final = 5 * INTERVAL_SECONDS
"""A round that is older is not told any more: each of its questions may take until then."""

_ASKED_AFTER: Final = {
    "munge": "", "scheduler": "munge", "jobs": "scheduler", "nodes": "scheduler", "partitions": "jobs",
    "configuration": "", "slurmdbd": "munge",
}  # fmt: skip
"""Source -> what has to have answered before, as each question may wait for 25 s. `munge`: this pod's own munged,
without which nothing is known of the others. `scheduler`: the least that slurmctld can be asked for."""

_DAEMON_OF: Final = {"scheduler": "slurmctld", "slurmdbd": "slurmdbd"}
"""Source -> the daemon that is up where it answers."""

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


class Rounds:
    """Asks each source once a round, and keeps the text of the latest round."""

    def __init__(
        self, sources: Sources, log: Callable[[str], None], *, by_person: bool, accounting: bool,
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        """`by_person`: whether accounts are named."""
        self._sources, self._log, self._now = sources, log, now
        self._by_person = by_person
        self._names = [name for name in _ASKED_AFTER if accounting or name != "slurmdbd"]
        self._jobs: list[Job] = []
        self._complaints: dict[str, str] = {}
        self._latest = (0.0, "")
        """When the latest round ended, and its text."""
        self.elastic: list[str] = []
        """Nodes of elastic pools that are up. The latest that is known: Prometheus is to see those that vanish."""

    def text(self) -> str:
        """The latest round; nothing where that is too old, which the alert SlurmFiguresMissing tells."""
        at, text = self._latest
        return text if self._now() - at <= OLD_SECONDS else ""

    def round(self) -> None:
        """Ask each source once."""
        answered, parts, about = {""}, list[str](), Metrics()
        for name in self._names:
            message, metrics = "not asked", Metrics()
            if _ASKED_AFTER[name] in answered:
                try:
                    self._ask(name, metrics)
                    message = ""
                    answered.add(name)
                    parts.append(metrics.text())
                except Exception as error:  # noqa: BLE001 - users write into these records, and one must not end all
                    message = f"{type(error).__name__}: {error}"
                if message != self._complaints.get(name, ""):  # once for each change, not each round
                    self._log(f"{name}: {message or 'can be read again'}")
                self._complaints[name] = message
                if name in _DAEMON_OF:
                    about.put(f"slurmstack_{_DAEMON_OF[name]}_up", not message)
            about.put("slurmstack_exporter_up", not message, source=name)
        self._latest = (self._now(), "".join([*parts, about.text()]))

    def _ask(self, name: str, metrics: Metrics) -> None:
        """One source, for its metrics."""
        sources = self._sources
        match name:
            case "munge":
                sources.munge()
            case "slurmdbd":
                sources.slurmdbd()
            case "scheduler":
                put_scheduler(metrics, sources.scheduler())
            case "jobs":
                self._jobs = sources.jobs()
                put_jobs(metrics, self._jobs, self._now(), by_person=self._by_person)
            case "partitions":
                put_partitions(metrics, sources.partitions(), self._jobs)
            case "nodes":
                nodes = sources.nodes()
                put_nodes(metrics, nodes)
                self.elastic = [node.name for node in nodes if node.is_cloud and node.is_up]
            case "configuration":
                found = sources.configuration()
                metrics.put("slurmstack_configuration_refused", found["refused"] or 0)
                for key in sorted({"free_bytes", "size_bytes"} & found.keys()):
                    metrics.put(f"slurmstack_volume_{key}", found[key] or 0, volume="state")


def _answer(rounds: Rounds, path: str) -> Answer:
    if path == "/metrics":
        return Answer(PROMETHEUS, rounds.text())
    if path == "/targets":
        targets = [f"{name}:{JOB_METRICS_PORT}" for name in rounds.elastic]
        return Answer("application/json", json.dumps([{"targets": targets}]))
    if path == "/healthz":
        return Answer("text/plain", "ok\n")
    return Answer("text/plain", "known: /metrics /targets /healthz\n", HTTPStatus.NOT_FOUND)


def _serve(log: Log) -> NoReturn:
    """As components/exporter.py asks for it."""
    sources = Sources(agent_url=os.environ.get("AGENT_URL", Sources.agent_url))
    rounds = Rounds(
        sources, log,
        by_person=os.environ.get("BY_PERSON") == "yes",
        accounting=os.environ.get("ACCOUNTING") == "yes",
    )  # fmt: skip
    start_server(lambda path: _answer(rounds, path), PORT)
    interval = float(os.environ.get("INTERVAL_SECONDS", INTERVAL_SECONDS))
    while True:
        begun = time.monotonic()
        rounds.round()
        time.sleep(max(interval - (time.monotonic() - begun), 1.0))


def main() -> None:
    """Entry point."""
    with program("exporter") as log:
        _serve(log)
