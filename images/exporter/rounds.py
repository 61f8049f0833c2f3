"""One round asks each source once; scrapes are answered from the latest."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from images.exporter import own_figures, slurm_figures
from images.exporter.own_figures import put_down, put_drained, put_paused, put_requeues, put_stuck, put_waits
from images.exporter.slurm_figures import put_jobs, put_nodes, put_partitions, put_people, put_scheduler
from images.exporter.sources import Agent, SourceError, Sources, end_of_certificate
from images.exporter.text import Family, exposition

INTERVAL_SECONDS: Final = 30.0
"""Between the begins of two rounds."""

_OF_SLURMCTLD: Final = ("jobs", "nodes", "partitions")
"""Asked after `scheduler`, the least that slurmctld can be asked for."""

_WITH_MUNGE: Final = ("scheduler", *_OF_SLURMCTLD, "slurmdbd")
"""Not asked where the pod's own munged does not answer: nothing would be learned of them, after 50 s each."""

OLD_SECONDS: Final = 5 * INTERVAL_SECONDS
"""A round that is older is not told any more: each of its questions may take until then."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What there is to ask for."""

    slurms_own: bool
    """Whether Slurm's own names are given; not where slurmctld gives them itself, but for those of `by_person`."""
    by_person: bool
    """Whether users and accounts are named."""
    accounting: bool
    certificates: dict[str, str] = field(default_factory=dict)
    """Name -> file."""


@dataclass
class _Read:
    """What one source has given in this round, and how that went."""

    seconds: float = 0
    value: Any = None
    message: str | None = None
    """What is wrong with it; empty where nothing is, None where it was not asked."""

    @property
    def is_up(self) -> bool:
        """Whether it answered, and its figures are there."""
        return self.message == ""


class Rounds:
    """Asks in the background, and keeps the text of the latest round."""

    def __init__(
        self,
        wanted: Wanted,
        sources: Sources,
        log: Callable[[str], None],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._wanted, self._sources, self._log, self._now = wanted, sources, log, now
        self._collected: dict[str, float] = {}
        self._complaints: dict[str, str] = {}
        self._lock = threading.Lock()
        self._text, self._at = "", 0.0
        self._elastic: list[str] = []

    def text(self) -> str:
        """The latest round; where that is too old, only that nothing is up."""
        with self._lock:
            text, at = self._text, self._at
        if self._now() - at <= OLD_SECONDS:
            return text
        figures = own_figures.Figures()
        for name in self._questions():
            figures.put("exporter_up", 0, source=name)
        return exposition(figures.families.values())

    def elastic(self) -> list[str]:
        """Nodes of elastic pools that are up. The latest that is known: Prometheus is to see those that vanish."""
        with self._lock:
            return self._elastic

    def round(self) -> None:
        """Ask each source once."""
        reads: dict[str, _Read] = {}
        for name, ask in self._questions().items():
            # One that does not answer is not asked three times more: each question may wait for long.
            is_down = name in _OF_SLURMCTLD and not reads["scheduler"].is_up
            is_mute = name in _WITH_MUNGE and not reads["munge"].is_up
            reads[name] = _Read() if is_down or is_mute else _read(ask)
        text = exposition(self._families(reads))
        nodes = reads["nodes"].value
        with self._lock:
            self._text, self._at = text, self._now()
            if nodes is not None:
                self._elastic = [node.name for node in nodes if node.is_elastic and node.is_up]

    def _questions(self) -> dict[str, Callable[[], Any]]:
        found: dict[str, Callable[[], Any]] = {
            "munge": self._sources.munge,
            "scheduler": self._sources.scheduler,
            "jobs": self._sources.jobs,
            "nodes": self._sources.nodes,
            "partitions": self._sources.partitions,
            "configuration": self._sources.agent,
        }
        if self._wanted.accounting:
            found["slurmdbd"] = self._sources.slurmdbd
            found["policy"] = self._sources.policy
        if self._wanted.certificates:
            found["certificates"] = self._ends
        return found

    def _ends(self) -> dict[str, float]:
        return {name: end_of_certificate(path) for name, path in self._wanted.certificates.items()}

    def _complain(self, name: str, message: str) -> None:
        """Once for each change, not each round."""
        if message != self._complaints.get(name, ""):
            self._log(f"{name}: {message or 'can be read again'}")
        self._complaints[name] = message

    def _families(self, reads: dict[str, _Read]) -> list[Family]:
        families = [family for name in reads for family in self._built(name, reads)]
        own = own_figures.Figures()
        for name, read in reads.items():
            if read.message is not None:
                self._complain(name, read.message)
            if read.is_up:
                self._collected[name] = self._now()
            own.put("exporter_up", read.is_up, source=name)
            own.put("exporter_collection_seconds", read.seconds, source=name)
            if name in self._collected:
                own.put("exporter_collected_timestamp_seconds", self._collected[name], source=name)
        for daemon, name in (("slurmctld", "scheduler"), ("slurmdbd", "slurmdbd")):
            if name in reads and reads[name].message is not None:
                own.put(f"{daemon}_up", reads[name].value is not None)
        return [*families, *own.families.values()]

    def _built(self, name: str, reads: dict[str, _Read]) -> list[Family]:
        """The figures of one source. None where they cannot be made: it is not up then, and the others' stay."""
        own, slurms = own_figures.Figures(), slurm_figures.Figures()
        try:
            self._put(name, {source: read.value for source, read in reads.items()}, own, slurms)
        except Exception as error:  # noqa: BLE001 - users write into these records, and one must not end all figures
            reads[name].message = f"no figures could be made: {error!r}"
            return []
        return [*slurms.families.values(), *own.families.values()]

    def _put(self, name: str, values: dict[str, Any], own: own_figures.Figures, slurms: slurm_figures.Figures) -> None:
        value = values[name]
        if value is None:
            return
        if name == "certificates":
            for certificate, end in value.items():
                own.put("certificate_not_after_timestamp_seconds", end, name=certificate)
        elif name == "configuration":
            _put_agent(own, value)
        elif name == "policy":
            for state, figure in (("failed", "policy_failed"), ("applied", "policy_applied_timestamp_seconds")):
                if state in value:
                    own.put(figure, value[state])
        else:
            self._put_own(name, values, own)
            if self._wanted.slurms_own:
                self._put_slurms(name, values, slurms)
            if name == "jobs" and self._wanted.by_person:
                put_people(slurms, value)

    def _put_own(self, name: str, values: dict[str, Any], own: own_figures.Figures) -> None:
        jobs, nodes, partitions = (values[source] for source in _OF_SLURMCTLD)
        if name == "jobs":
            put_waits(own, jobs, self._now(), by_person=self._wanted.by_person)
            put_requeues(own, jobs)
        elif name == "nodes":
            put_drained(own, nodes, by_person=self._wanted.by_person)
            put_down(own, nodes)
            put_paused(own, nodes)
        elif name == "partitions" and jobs is not None and nodes is not None:
            put_stuck(own, [partition.name for partition in partitions], jobs, nodes, self._now())

    def _put_slurms(self, name: str, values: dict[str, Any], slurms: slurm_figures.Figures) -> None:
        jobs, nodes, partitions = (values[source] for source in _OF_SLURMCTLD)
        if name == "scheduler":
            put_scheduler(slurms, values[name])
        elif name == "jobs":
            put_jobs(slurms, jobs)
        elif name == "nodes":
            put_nodes(slurms, nodes)
        elif name == "partitions" and jobs is not None and nodes is not None:
            put_partitions(slurms, partitions, jobs, nodes)


def _read(ask: Callable[[], Any]) -> _Read:
    begun = time.monotonic()
    try:
        read = _Read(value=ask(), message="")
    except SourceError as error:
        read = _Read(message=str(error))
    except Exception as error:  # noqa: BLE001 - as in _built
        read = _Read(message=repr(error))
    read.seconds = time.monotonic() - begun
    return read


def _put_agent(own: own_figures.Figures, agent: Agent) -> None:
    own.put("configuration_refused", agent.is_refused)
    own.put("configuration_pending", agent.is_pending)
    if agent.published is not None:
        own.put("configuration_applied_timestamp_seconds", agent.published)
    if agent.free_bytes is not None and agent.size_bytes is not None:
        own.put("volume_free_bytes", agent.free_bytes, volume="state")
        own.put("volume_size_bytes", agent.size_bytes, volume="state")
