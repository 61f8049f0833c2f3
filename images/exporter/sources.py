"""Where the figures come from: one question to each source a round, and how its answer is read."""

from __future__ import annotations

import json
import os
import ssl
import urllib.request
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from images.common import slurm_jobs
from images.common.command import Runner, run
from images.common.slurm_node import ELASTIC_PARTITION
from images.common.slurm_records import Columns, NodeRecord, entries_in, node_records, text_of
from images.controller.configuration import config_hash, read_files

_HELD: Final = frozenset({"JobHeldAdmin", "JobHeldUser", "job_requeued_in_held_state", "launch_failed_requeued_held"})
"""Reasons; the last two are what squeue has in place of one of the others."""

_FIELDS: Final = (
    "number", "state", "reason", "partitions", "account", "cpus", "min_cpus", "min_nodes", "eligible", "restarts",
    "resources",
)  # fmt: skip

_PICKY: Final = (
    "ReqNodes", "ExcNodes", "Feature", "ClusterFeature", "Reservation", "Licenses", "Dependency", "tres-per-job",
    "tres-per-node", "tres-per-socket", "tres-per-task", "cpus-per-tres", "mem-per-tres", "Contiguous", "ReqSwitch",
    "MinTmpDisk", "SCT", "NTPerCore", "NTPerSocket", "Network", "MCSLabel", "BurstBuffer", "CoreSpec", "HetJobID",
)  # fmt: skip
"""What a job may ask for that is not compared with nodes."""

_NOT_ASKED: Final = frozenset({"", "N/A", "0", "*:*:*"})

SHORT_FIELDS: Final = frozenset(_PICKY) - {"tres-per-task"}
"""Of which nothing but that they are there is used: a dependency on a thousand tasks is 28 kB (seen)."""

COLUMNS: Final = (*slurm_jobs.columns(_FIELDS), *_PICKY)
"""Of squeue."""

NAME_LENGTH: Final = 128
"""Bytes of an account's name: Prometheus counts these, and takes nothing of a scrape in which one is too long."""


@dataclass(frozen=True, kw_only=True)
class Job(slurm_jobs.Job):
    """A job, or the tasks of an array that still wait together. All from one `squeue --array`."""

    waiting_tasks: int = 1
    """Of an array that wait together; else 1."""
    is_picky: bool = False
    """Whether it asks for more than what nodes are compared by: nobody but Slurm knows what fits it."""

    @property
    def is_held(self) -> bool:
        """Whether a person has to let it go."""
        return self.waits and self.reason in _HELD

    @property
    def partition(self) -> str:
        """While it waits for several it is counted for the first, as it is only in one for slurmctld."""
        return self.partitions[0]


def jobs_of(rows: Iterable[Mapping[str, str]]) -> list[Job]:
    """Jobs, of which COLUMNS has a row for each task of an array that waits."""
    first: dict[str, Mapping[str, str]] = {}
    tasks: Counter[str] = Counter()
    for row in rows:
        first.setdefault(row["JobID"], row)
        tasks[row["JobID"]] += 1
    return [_job_of(row, tasks[number]) for number, row in first.items()]


def _job_of(row: Mapping[str, str], tasks: int) -> Job:
    found = slurm_jobs.values(row, _FIELDS)
    found["account"] = row["Account"].encode(errors="replace")[:NAME_LENGTH].decode(errors="ignore")
    return Job(**found, waiting_tasks=tasks, is_picky=any(_asks(field, row[field]) for field in _PICKY))


def _asks(field: str, value: str) -> bool:
    if field == "tres-per-task":  # `-c 2` is `cpu=2` there
        return any(not part.startswith("cpu") for part in value.split(",") if part not in _NOT_ASKED)
    return value.strip() not in _NOT_ASKED


@dataclass(frozen=True, kw_only=True)
class Node(NodeRecord):
    """A node."""

    @property
    def is_elastic_and_up(self) -> bool:
        """Whether Slurm starts and ends it, and its pod is to be there, and has been."""
        return "CLOUD" in self.states and not self.states & {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "DOWN"}


QUESTION_SECONDS: Final = 25.0
"""For one command of Slurm's. An overloaded slurmctld lets them wait and say nothing until then."""

_BOUND: Final = ("prlimit", "--core=0", f"--as={1 << 30}")
"""Users write into what squeue reads, tens of kB a job, and must not fill the exporter. 10,000 usual jobs need less
(docs/benchmarks); as JSON 1.5 GiB."""
JOBS: Final = (*_BOUND, "squeue", "--all", "--array", "--noheader", "--noconvert")
NODES: Final = ("scontrol", "show", "nodes", "--all", "--json")
PARTITIONS: Final = ("scontrol", "show", "partitions", "--all", "--json")
ELASTIC_POOLS: Final = "elastic.pools"
"""File with the elastic pools' names (slurm/elastic.py)."""
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
        columns = Columns(COLUMNS, SHORT_FIELDS)
        return jobs_of(columns.rows(self._ask((*JOBS, columns.option))))

    def nodes(self) -> list[Node]:
        """Every node, also those of hidden partitions."""
        return node_records(self._ask(NODES), Node)

    def partitions(self) -> list[str]:
        """Names of every partition, but those that only carry the times of an elastic pool."""
        found = [text_of(entry.get("name")) for entry in entries_in(self._ask(PARTITIONS), "partitions")]
        try:
            pools = (self.mounted / ELASTIC_POOLS).read_text(encoding="utf-8").split()
        except OSError:
            return found
        hidden = {ELASTIC_PARTITION + pool for pool in pools}
        return [name for name in found if name not in hidden]

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
        return {**self._get("store"), "refused": refused, "pending": bool(status.get("pending"))}

    def certificates(self, files: Mapping[str, str]) -> Mapping[str, float]:
        """When the first certificate of each PEM file ends, in seconds since 1970, by the name that it has."""
        # The one reader of certificates in Python's own library; openssl is in no image.
        read: Any = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]  # noqa: SLF001
        return {name: ssl.cert_time_to_seconds(read(path)["notAfter"]) for name, path in files.items()}

    def _ask(self, command: tuple[str, ...]) -> str:
        # Text without line breaks is a third shorter; times are seconds since 1970, in JSON always.
        env = {**os.environ, "SLURM_JSON": "compact", "SLURM_TIME_FORMAT": "%s"}
        result = self.runner(command, timeout=QUESTION_SECONDS, env=env)
        if not result.ok:
            raise SourceError(f"{' '.join(command)}: {result.message}")
        return result.stdout

    def _get(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.agent_url}/{path}", timeout=5) as response:  # noqa: S310 - our own pod
            found: dict[str, Any] = json.load(response)
        return found
