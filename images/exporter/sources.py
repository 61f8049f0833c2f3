"""Where the figures come from: one question to each source a round."""

from __future__ import annotations

import json
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from images.common.command import Result, Runner, run
from images.common.slurm_node import ELASTIC_PARTITION
from images.common.slurm_records import Columns, NotUnderstoodError, states_of, text_of
from images.controller.configuration import config_hash, read_files
from images.exporter.records import (
    BASE_STATES,
    JOB_FIELDS,
    SHORT_FIELDS,
    Job,
    Node,
    Partition,
    entries,
    jobs_of,
    node_of,
    partition_of,
)

QUESTION_SECONDS: Final = 25.0
"""For one command of Slurm's. An overloaded slurmctld lets them wait and say nothing until then."""

_BOUND: Final = ("prlimit", "--core=0", f"--as={1 << 30}")
"""Users write into what squeue reads, tens of kB a job, and must not fill the exporter. 10,000 usual jobs need less
(docs/benchmarks); as JSON 1.5 GiB."""
JOBS: Final = (*_BOUND, "squeue", "--all", "--array", "--states=all", "--noheader", "--noconvert")
JOB_STATES: Final = (*_BOUND, "squeue", "--only-job-state", "--json")
_NAMED: Final = 5000
"""Jobs that are named in a command line; of more, all are asked for."""
NODES: Final = ("scontrol", "show", "nodes", "--all", "--json")
PARTITIONS: Final = ("scontrol", "show", "partitions", "--all", "--json")
ELASTIC_POOLS: Final = "elastic.pools"
"""File with the elastic pools' names (slurm/elastic.py)."""
MUNGE: Final = ("munge", "--no-input")
SCHEDULER: Final = ("sdiag", "--json")
SLURMDBD: Final = ("sacctmgr", "ping")

Record = TypeVar("Record")


class SourceError(Exception):
    """A source has not answered, or with what is not understood."""


@dataclass(frozen=True, kw_only=True)
class Agent:
    """What the configuration agent says."""

    is_refused: bool
    is_pending: bool
    published: float | None
    """Seconds since 1970."""
    free_bytes: float | None
    """Of the volume with slurmctld's state."""
    size_bytes: float | None


@dataclass(frozen=True, kw_only=True)
class Sources:
    """The questions. All of them raise SourceError."""

    runner: Runner = run
    agent_url: str = "http://controller-0:8817"
    mounted: Path = Path("/config/slurm")
    """The files as the stack has them now."""

    def jobs(self) -> list[Job]:
        """Every job that slurmctld knows, in all partitions, also those that ended a moment ago (MinJobAge)."""
        columns = Columns(JOB_FIELDS, SHORT_FIELDS)
        answer = self._ask((*JOBS, columns.option)).stdout
        try:
            rows = list(columns.rows(answer))
            # squeue shows a flag in place of the state: COMPLETING, and not what the job ended as.
            return jobs_of(rows, self._states([row["JobID"] for row in rows if row["State"] not in BASE_STATES]))
        except (NotUnderstoodError, ValueError) as error:
            raise SourceError(f"squeue: {error}") from error

    def _states(self, jobs: Sequence[str]) -> dict[str, frozenset[str]]:
        """All states of these jobs by JobID, of tasks of arrays too (`12_3`)."""
        if not jobs:
            return {}
        named = (f"--jobs={','.join(jobs)}",) if len(jobs) <= _NAMED else ()
        found = entries(self._ask((*JOB_STATES, *named)).stdout, "jobs")
        return {re.split("[_+]", text_of(entry.get("job_id")))[0]: states_of(entry.get("state")) for entry in found}

    def nodes(self) -> list[Node]:
        """Every node, also those of hidden partitions."""
        return self._records(NODES, "nodes", node_of)

    def partitions(self) -> list[Partition]:
        """Every partition, but those that only carry the times of an elastic pool."""
        found = self._records(PARTITIONS, "partitions", partition_of)
        try:
            pools = (self.mounted / ELASTIC_POOLS).read_text(encoding="utf-8").split()
        except OSError:
            return found
        hidden = {ELASTIC_PARTITION + pool for pool in pools}
        return [partition for partition in found if partition.name not in hidden]

    def scheduler(self) -> Mapping[str, Any]:
        """What `sdiag` has, but calls by type and user."""
        try:
            statistics: Mapping[str, Any] = json.loads(self._ask(SCHEDULER).stdout)["statistics"]
        except (ValueError, KeyError) as error:
            raise SourceError(f"{' '.join(SCHEDULER)}: {error!r}") from error
        return statistics

    def munge(self) -> bool:
        """True: the munged of this pod answers."""
        return self._ask(MUNGE).ok

    def slurmdbd(self) -> bool:
        """True: it answers, which it does not without its database (24.11 and 26.05)."""
        answer = self._ask(SLURMDBD).stdout
        if not answer.strip().endswith("UP"):
            raise SourceError(answer.strip())
        return True

    def agent(self) -> Agent:
        """What the configuration agent says of what is in force."""
        status, store = self._get("config"), self._get("store")
        try:
            latest = config_hash(read_files(self.mounted))
        except OSError as error:  # they are being exchanged
            raise SourceError(f"{self.mounted}: {error}") from error
        return Agent(
            # The agent remembers a refusal, also when others have been taken since.
            is_refused=(status.get("rejected") or {}).get("hash") == latest,
            is_pending=bool(status.get("pending")),
            published=store.get("published"),
            free_bytes=store.get("free_bytes"),
            size_bytes=store.get("size_bytes"),
        )

    def policy(self) -> Mapping[str, float]:
        """How the jobs that apply the policy have ended: `applied` and `failed`, as far as the agent knows."""
        return self._get("policy")

    def _records(
        self, command: tuple[str, ...], kind: str, parse: Callable[[Mapping[str, Any]], Record]
    ) -> list[Record]:
        answer = self._ask(command).stdout
        try:
            return [parse(entry) for entry in entries(answer, kind)]
        except (NotUnderstoodError, ValueError, TypeError, AttributeError) as error:
            raise SourceError(f"{' '.join(command)}: {error}") from error

    def _ask(self, command: tuple[str, ...]) -> Result:
        # Text without line breaks is a third shorter; times are seconds since 1970, in JSON always.
        env = {**os.environ, "SLURM_JSON": "compact", "SLURM_TIME_FORMAT": "%s"}
        result = self.runner(command, timeout=QUESTION_SECONDS, env=env)
        if not result.ok:
            raise SourceError(f"{' '.join(command)}: {result.message}")
        return result

    def _get(self, path: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"{self.agent_url}/{path}", timeout=5) as response:  # noqa: S310 - our own pod
                found: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            raise SourceError(f"configuration agent: {error.read(300).decode(errors='replace').strip()}") from error
        except (OSError, ValueError) as error:
            raise SourceError(f"configuration agent: {error}") from error
        return found


def end_of_certificate(path: str) -> float:
    """When the first certificate of a PEM file ends, in seconds since 1970. Raises SourceError."""
    try:
        # The one reader of certificates in Python's own library; openssl is in no image.
        decoded: dict[str, Any] = ssl._ssl._test_decode_cert(path)  # type: ignore[attr-defined]  # noqa: SLF001
        return float(ssl.cert_time_to_seconds(decoded["notAfter"]))
    except (OSError, ValueError, KeyError) as error:
        raise SourceError(f"{path}: {error}") from error
