"""What is seen of elastic pools: templates and pods in Kubernetes, nodes in Slurm, windows; which nodes a pool has.

Windows are hours of the week in which a pool has other bounds. Which one it is in follows from the time alone, so a
restart, a clock that jumps, and the days on which clocks are changed need no care: a window is on whenever the clock on
the wall says so. In the hour that a clock repeats it is on twice; hours that a clock leaves out it lacks.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from images.common.kubernetes import WORKER_PODS, Object
from images.common.slurm_node import OURS, TOPOLOGY_REASON
from images.common.slurm_records import MARK, fields_of, mark_in

DAY: Final = 24 * 60
"""Minutes."""

SETTINGS: Final = "slurmstack/elastic"
"""Annotation of a pool's PodTemplate with its settings, which components/elastic.py writes."""

MAX_UNAVAILABLE: Final = "slurmstack/max-unavailable"
"""Annotation of a pool's StatefulSet or PodTemplate: how many nodes may be away at once for new pods (rolls.py)."""

TEMPLATE: Final = "slurmstack/template"
"""Label of a pod: the digest of the template that it was made from."""

SLURM: Final = "slurm"
"""Who sets slurmctld's own reasons."""

FEATURES: Final = "Feature="
"""In what slurmctld is told of a node."""

_OF_US: Final = re.compile(r"[a-z0-9][a-z0-9-]*-\d+")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_FREE_TEXT: Final = re.compile(r" (?:Comment|Extra)=")
"""Where a line of scontrol begins to have what jobs can write: names of processes in what the health checks say."""

_SET_AT: Final = re.compile(r" \[(?P<by>[^\[\]@]*)@[^\[\]]*\]$")
"""Who has set a reason, and when: what scontrol adds to it."""

BUSY, IDLE, BARRED, OFF, LEAVING = range(5)
"""Who stays, in this order. One that is barred stays off, and its record is kept where others take its place, too."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """Some hours on some days."""

    name: str
    """As the stack file has it: `mon-fri 08:00-19:00`."""
    days: frozenset[int]
    """On which it begins; 0 is Monday."""
    begin: int
    end: int
    """In minutes of the day, the second one not in it. Where it is not after the first one, of the next day."""
    least: int
    """Nodes that stay up without jobs meanwhile."""
    most: int
    """Nodes at most meanwhile."""

    def is_on(self, at: datetime) -> bool:
        """Whether a clock on the wall says that it is."""
        day, minute = at.weekday(), at.hour * 60 + at.minute
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        return (day in self.days and minute >= self.begin) or ((day - 1) % 7 in self.days and minute < self.end)


def zone_of(name: str) -> tzinfo | None:
    """The time zone; None where this image has none of that name."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def present(windows: Iterable[Window], zone: tzinfo, now: float) -> Window | None:
    """The one that is on. `now`: seconds since 1970."""
    at = datetime.fromtimestamp(now, zone)
    return next((window for window in windows if window.is_on(at)), None)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """An elastic pool, as the stack file wants it."""

    name: str
    least: int
    """Nodes that stay up without jobs; where the pool is in a window, of that."""
    most: int
    """Nodes that there are records of."""
    conf: str
    """What slurmctld is told of each node: `CPUs=8 RealMemory=...`."""
    resume_timeout: float
    """Seconds that a node may take to be there."""
    idle_timeout: float = 600.0
    """Seconds that a node stays when its last job has ended."""
    windows: tuple[Window, ...] = ()
    timezone: str = "UTC"
    limit: int | None = None
    """Nodes that may have a machine just now. None: as many as there are."""
    max_unavailable: str = "10%"
    """Nodes that are powered down at once for new pods: a number, or a percentage of those that have pods."""
    window: str = ""
    """The one that it is in, for people (bounds.py)."""
    template: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Metadata and specification of a pod."""
    uid: str = ""
    """Of the PodTemplate, whose pods go when it goes."""
    digest: str = ""

    @property
    def features(self) -> str:
        """Of its nodes, with commas; empty: none."""
        return next((word.partition("=")[2] for word in self.conf.split() if word.startswith(FEATURES)), "")

    def nodes(self) -> tuple[str, ...]:
        """Names of all nodes that there can be."""
        return tuple(f"{self.name}-{number}" for number in range(self.most))

    @property
    def most_now(self) -> int:
        """Nodes that may have a machine just now."""
        return self.most if self.limit is None else self.limit

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
    revision: str = ""
    """Of the template that it was made from, where a StatefulSet has made it."""
    is_ready: bool = False
    has_ended: bool = False
    """It was evicted, or its machine was shut down: nothing of it runs, and nothing will."""


class _Has:
    """A property of a node: whether its record has any of these states."""

    def __init__(self, *states: str) -> None:
        self._states = frozenset(states)

    def __get__(self, node: Node, _: type[Node]) -> bool:
        return bool(node.states & self._states)


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
    busy_at: float = 0.0
    """When a job was last on it, or it came, in seconds since 1970."""
    is_bare: bool = False
    """It has no features: no partition has it, as partitions find nodes by those."""

    is_cloud = _Has("CLOUD")
    """Whether Slurm starts and ends it."""
    is_off = _Has("POWERED_DOWN", "POWERING_DOWN")
    """Whether it is to have no pod."""
    is_powered_down = _Has("POWERED_DOWN")
    """Whether Slurm may start it."""
    is_coming = _Has("POWERING_UP")
    """Whether Slurm waits for it to register."""
    is_down = _Has("DOWN")
    """Whether Slurm has given it up."""
    is_drained = _Has("DRAIN")
    """Whether somebody keeps jobs from it."""
    goes_down = _Has("POWER_DOWN", "POWERING_DOWN")
    """Whether it is to be powered down when its jobs have ended."""
    is_to_be_off = _Has("POWER_DOWN")
    """Whether slurmctld has not yet begun to power it down."""
    is_planned = _Has("PLANNED")
    """Whether the scheduler keeps it for a job that waits for others, too."""
    is_reserved = _Has("RESERVED")
    """Whether a reservation has it now: Slurm would not delete its record."""
    is_silent = _Has("NOT_RESPONDING")
    """Whether slurmctld thinks that it does not answer."""

    @property
    def is_awaited(self) -> bool:
        """Whether a job has it that Slurm is about to power it up for, which takes it up to a second."""
        return self.is_powered_down and bool(self.states & {"ALLOCATED", "MIXED"}) and not self.goes_down

    @property
    def is_moving(self) -> bool:
        """Whether Slurm or the configuration agent is about to do something with it."""
        return self.is_coming or self.goes_down or (self.is_drained and self.reason == TOPOLOGY_REASON)

    @property
    def is_idle(self) -> bool:
        """Whether no job is on it."""
        return "IDLE" in self.states and "COMPLETING" not in self.states

    @property
    def is_others(self) -> bool:
        """Whether an administrator or a health check keeps jobs from it."""
        return self.is_drained and not self.reason.startswith(OURS)

    @property
    def is_set_down(self) -> bool:
        """Whether an administrator has set it down, or Slurm for his reason."""
        return self.is_down and self.reason_by != SLURM and not self.reason.startswith(OURS)

    @property
    def is_barred(self) -> bool:
        """Whether it is off, and an administrator or a health check does not want it started."""
        return self.is_off and (self.is_others or self.is_set_down)

    @property
    def is_free(self) -> bool:
        """Whether no job is on it, and it may have one."""
        return self.is_idle and not (self.is_drained or self.goes_down)

    @property
    def has_nothing(self) -> bool:
        """Whether it is off, and no job waits for it."""
        return self.is_powered_down and (self.is_idle or self.is_down)

    @property
    def is_up(self) -> bool:
        """Whether it has registered, and jobs can run on it."""
        return not (self.is_off or self.is_coming or self.is_down)


def nodes_in(lines: str) -> dict[str, Node]:
    """Nodes in the output of `scontrol show nodes --oneliner`, by name. What has no name or state is left out.

    In the order of scontrol (24.11 and 26.05): name, state, reason, comment, extra, and then what only administrators
    set. What stands before the comment is taken from there alone.
    """
    found = {}
    for line in lines.splitlines():
        fields = fields_of(_FREE_TEXT.split(line, maxsplit=1)[0], last="Reason")
        name, said, busy = fields.get("NodeName", ""), fields["Reason"].strip(), fields.get("LastBusyTime", "")
        if not _OF_US.fullmatch(name) or not fields.get("State"):
            continue
        set_by = _SET_AT.search(said)
        found[name] = Node(
            name=name,
            states=frozenset(word.strip("*~#!%$@^-") for word in fields["State"].split("+")),
            reason=said[: set_by.start()] if set_by else said,
            reason_by=set_by["by"] if set_by else "",
            mark=mark_in(line.rpartition(" Extra=")[2]),  # more may follow: ReservationName=...
            # On the clock of both programs.
            busy_at=datetime.fromisoformat(busy).timestamp() if _TIME.fullmatch(busy) else 0.0,
            is_bare=fields.get("AvailableFeatures") == "",
        )
    return found


def marked(mark: str) -> str:
    """The `Extra` of a new record. slurmd writes another one with the mark that it finds (images/worker/slurmd.py)."""
    return json.dumps({MARK: mark})


def pod_of(item: Object) -> Pod:
    """A pod of the API."""
    metadata = item["metadata"]
    labels, status = metadata.get("labels") or {}, item.get("status") or {}
    return Pod(
        name=metadata["name"],
        pool=labels.get(WORKER_PODS, ""),
        uid=metadata.get("uid", ""),
        digest=labels.get(TEMPLATE, ""),
        revision=labels.get("controller-revision-hash", ""),
        is_leaving="deletionTimestamp" in metadata,
        is_ready=any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ()),
        has_ended=status.get("phase") in {"Failed", "Succeeded"},
    )


def pool_of(item: Object) -> Pool | None:
    """A pool of its PodTemplate; None for one that is not ours. Raises ValueError, KeyError, TypeError."""
    metadata = item["metadata"]
    annotations = metadata.get("annotations") or {}
    settings = annotations.get(SETTINGS)
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
        idle_timeout=float(said.get("idle_timeout", 600)),
        windows=tuple(
            Window(
                name=str(one["name"]),
                days=frozenset(one["days"]),
                begin=int(one["begin"]),
                end=int(one["end"]),
                least=int(one["min"]),
                most=int(one["max"]),
            )
            for one in said.get("windows", ())  # as slurm/elastic.py writes them
        ),
        timezone=str(said.get("timezone", "UTC")),
        max_unavailable=str(annotations.get(MAX_UNAVAILABLE, "10%")),
        template=template,
        uid=metadata.get("uid", ""),
        digest=hashlib.sha256(canonical.encode()).hexdigest()[:16],
    )


def members(pool: Pool, nodes: Mapping[str, Node], ends: Mapping[str, float]) -> tuple[str, ...]:
    """Names of `pool.most` nodes, by their numbers. `ends`: when the jobs of a node end at the latest, where known.

    Who leaves already is the last to stay, so that each look chooses the same ones. A node beyond `most` that stayed
    for its job gives its place back when it is off.
    """
    beyond = _beyond(pool, nodes)
    if not beyond:
        return pool.nodes()
    usual = set(pool.nodes())

    def rank(name: str) -> tuple[int, float, int]:
        kind = _kind(nodes.get(name), is_usual=name in usual)
        return kind, -ends.get(name, math.inf) if kind == BUSY else 0.0, _number(name)

    return tuple(sorted(sorted([*usual, *beyond], key=rank)[: pool.most], key=_number))


def are_too_many(pool: Pool, nodes: Mapping[str, Node]) -> bool:
    """Whether some must leave that have jobs, so that it matters when those end."""
    beyond = _beyond(pool, nodes)
    kinds = [_kind(nodes.get(name), is_usual=True) for name in pool.nodes()]
    kinds += [_kind(nodes.get(name), is_usual=False) for name in beyond]
    return bool(beyond) and kinds.count(BUSY) > pool.most


def _beyond(pool: Pool, nodes: Mapping[str, Node]) -> list[str]:
    usual = set(pool.nodes())
    of_pool = (node for node in nodes.values() if node.name.rpartition("-")[0] == pool.name)
    return [node.name for node in of_pool if node.is_cloud and node.name not in usual]


def _kind(node: Node | None, *, is_usual: bool) -> int:
    if node is not None and node.is_awaited:
        return BUSY
    if node is not None and is_usual and (node.is_others or node.is_barred):
        return BARRED if node.is_off else BUSY  # it would lose its drain
    if node is None or node.is_off or (node.is_others and node.is_idle):
        return OFF
    if node.goes_down:
        return LEAVING
    return IDLE if node.is_cloud and (node.is_idle or node.is_down) and not node.is_coming else BUSY


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
