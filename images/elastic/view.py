"""What is seen of elastic pools: their templates and pods in Kubernetes, their nodes in Slurm."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from images.common.kubernetes import WORKER_PODS, Object
from images.common.slurm_node import MARK, OURS

SETTINGS: Final = "slurmstack/elastic"
"""Annotation of a pool's PodTemplate with its settings, which components/elastic.py writes."""

TEMPLATE: Final = "slurmstack/template"
"""Label of a pod: the digest of the template that it was made from."""

_OF_US: Final = re.compile(r"NodeName=(?P<name>[a-z0-9][a-z0-9-]*-\d+) ")
_STATE: Final = re.compile(r" State=(?P<states>\S+) ")
_REASON: Final = re.compile(r" Reason=(?P<reason>.*)")
_FREE_TEXT: Final = re.compile(r" (?:Comment|Extra)=")
"""Where a line of scontrol begins to have what jobs can write: names of processes in what the health checks say."""

_SET_AT: Final = re.compile(r" \[(?P<by>[^\[\]@]*)@[^\[\]]*\]$")
"""Who has set a reason, and when: what scontrol adds to it."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """An elastic pool, as the stack file wants it."""

    name: str
    least: int
    """Nodes that stay up without jobs."""
    most: int
    conf: str
    """What slurmctld is told of each node: `CPUs=8 RealMemory=...`."""
    resume_timeout: float
    """Seconds that a node may take to be there."""
    all_or_nothing: bool = True
    template: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Metadata and specification of a pod."""
    uid: str = ""
    """Of the PodTemplate, whose pods go when it goes."""
    digest: str = ""

    def nodes(self) -> tuple[str, ...]:
        """Names of all nodes that there can be."""
        return tuple(f"{self.name}-{number}" for number in range(self.most))

    @property
    def mark(self) -> str:
        """What the records of this pool's nodes say: another one is of an older configuration."""
        return hashlib.sha256(self.conf.encode()).hexdigest()[:12]


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A worker pod."""

    name: str
    pool: str
    uid: str = ""
    digest: str = ""
    """Of the template that it was made from; empty for one that is not of an elastic pool."""
    is_leaving: bool = False
    has_ended: bool = False
    """It was evicted, or its machine was shut down: nothing of it runs, and nothing will."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """The record of a Slurm node."""

    name: str
    states: frozenset[str]
    reason: str = ""
    reason_by: str = ""
    """Who has set it: a user's name, `slurm` for slurmctld itself."""
    mark: str = ""
    """Of the configuration that the record was made with."""

    @property
    def is_cloud(self) -> bool:
        """Whether Slurm starts and ends it."""
        return "CLOUD" in self.states

    @property
    def is_off(self) -> bool:
        """Whether it is to have no pod."""
        return bool(self.states & {"POWERED_DOWN", "POWERING_DOWN"})

    @property
    def is_powered_down(self) -> bool:
        """Whether Slurm may start it."""
        return "POWERED_DOWN" in self.states

    @property
    def is_coming(self) -> bool:
        """Whether Slurm waits for it to register."""
        return "POWERING_UP" in self.states

    @property
    def is_down(self) -> bool:
        """Whether Slurm has given it up."""
        return "DOWN" in self.states

    @property
    def is_drained(self) -> bool:
        """Whether somebody keeps jobs from it."""
        return "DRAIN" in self.states

    @property
    def goes_down(self) -> bool:
        """Whether it is to be powered down when its jobs have ended."""
        return bool(self.states & {"POWER_DOWN", "POWERING_DOWN"})

    @property
    def is_idle(self) -> bool:
        """Whether no job is on it."""
        return "IDLE" in self.states and "COMPLETING" not in self.states

    @property
    def is_reserved(self) -> bool:
        """Whether a reservation has it now: Slurm would not delete its record."""
        return "RESERVED" in self.states

    @property
    def is_others(self) -> bool:
        """Whether an administrator or a health check keeps jobs from it."""
        return self.is_drained and not self.reason.startswith(OURS)

    @property
    def is_free(self) -> bool:
        """Whether no job is on it, and it may have one."""
        return self.is_idle and not (self.is_drained or self.goes_down)

    @property
    def is_silent(self) -> bool:
        """Whether slurmctld thinks that it does not answer."""
        return "NOT_RESPONDING" in self.states

    @property
    def is_up(self) -> bool:
        """Whether it has registered, and jobs can run on it."""
        return not (self.is_off or self.is_coming or self.is_down)


def nodes_in(lines: str) -> dict[str, Node]:
    """Nodes in the output of `scontrol show nodes --oneliner`, by name. What has no name or state is left out.

    In the order of scontrol (24.11 and 26.05): name, state, reason, comment, extra, and then what only administrators
    set. What stands before the comment is taken from there alone, and the first of two.
    """
    found = {}
    for line in lines.splitlines():
        front = f"{_FREE_TEXT.split(line, maxsplit=1)[0]} "
        named, state, told = _OF_US.match(front), _STATE.search(front), _REASON.search(front)
        if named and state:
            said = told["reason"].strip() if told else ""
            set_by = _SET_AT.search(said)
            reason, by = (said[: set_by.start()], set_by["by"]) if set_by else (said, "")
            states = frozenset(word.strip("*~#!%$@^-") for word in state["states"].split("+"))
            mark = _mark(line.rpartition(" Extra=")[2])
            name = named["name"]
            found[name] = Node(name=name, states=states, reason=reason, reason_by=by, mark=mark)
    return found


def marked(mark: str) -> str:
    """The `Extra` of a new record. slurmd writes another one that has the same mark (images/worker/slurmd.py)."""
    return json.dumps({MARK: mark})


def _mark(extra: str) -> str:
    try:
        said, _ = json.JSONDecoder().raw_decode(extra)  # more may follow: ReservationName=...
    except ValueError:
        return ""
    return str(said.get(MARK, "")) if isinstance(said, dict) else ""


def pod_of(item: Object) -> Pod:
    """A pod of the API."""
    metadata = item["metadata"]
    labels = metadata.get("labels") or {}
    return Pod(
        name=metadata["name"],
        pool=labels.get(WORKER_PODS, ""),
        uid=metadata.get("uid", ""),
        digest=labels.get(TEMPLATE, ""),
        is_leaving="deletionTimestamp" in metadata,
        has_ended=(item.get("status") or {}).get("phase") in {"Failed", "Succeeded"},
    )


def pool_of(item: Object) -> Pool | None:
    """A pool of its PodTemplate; None for one that is not ours. Raises ValueError, KeyError, TypeError."""
    metadata = item["metadata"]
    settings = (metadata.get("annotations") or {}).get(SETTINGS)
    if settings is None:
        return None
    said = json.loads(settings)
    template = item["template"]
    canonical = json.dumps(template, sort_keys=True, separators=(",", ":"))
    return Pool(
        name=metadata["name"],
        least=int(said["min"]),
        most=int(said["max"]),
        conf=str(said["conf"]),
        resume_timeout=float(said["resume_timeout"]),
        all_or_nothing=bool(said["all_or_nothing"]),
        template=template,
        uid=metadata.get("uid", ""),
        digest=hashlib.sha256(canonical.encode()).hexdigest()[:16],
    )
