"""What is seen of pools: templates and pods in Kubernetes, nodes in Slurm."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from images.common.kubernetes import WORKER_PODS, Object, time_of
from images.common.slurm_node import OURS
from images.common.slurm_records import MARK, Has, NodeRecord

SETTINGS: Final = "slurmstack/elastic"
"""Annotation of a pool's PodTemplate with its settings, as slurm/elastic.py writes them."""
MAX_UNAVAILABLE: Final = "slurmstack/max-unavailable"
"""Annotation of a pool's StatefulSet or PodTemplate: how many nodes may be away at once for new pods."""
TEMPLATE: Final = "slurmstack/template"
"""The digest of a template, as it was applied: annotation of the PodTemplate, label of the pods made from it."""
SLURM: Final = "slurm"  # who sets slurmctld's own reasons
FEATURES: Final = "Feature="  # in what slurmctld is told of a node


@dataclass(frozen=True, kw_only=True)
class Pool:
    """An elastic pool, as the stack file wants it."""

    name: str
    least: int  # nodes that stay up without jobs
    most: int  # nodes that there are records of
    conf: str  # what slurmctld is told of each node: `CPUs=8 RealMemory=...`
    max_unavailable: str = "10%"
    """Nodes that are powered down at once for new pods: a number, or a percentage of those that have pods."""
    template: Mapping[str, Any] = field(default_factory=dict, compare=False)  # metadata and specification of a pod
    uid: str = ""  # of the PodTemplate, whose pods go when it goes
    digest: str = ""

    @property
    def features(self) -> str:
        """Of its nodes, with commas; empty: none."""
        return next((word.partition("=")[2] for word in self.conf.split() if word.startswith(FEATURES)), "")

    @property
    def mark(self) -> str:
        """What the records of this pool's nodes say: another one is of an older configuration."""
        return hashlib.sha256(self.conf.encode()).hexdigest()[:12]

    def nodes(self) -> tuple[str, ...]:
        """Names of all nodes that there can be."""
        return tuple(f"{self.name}-{number}" for number in range(self.most))

    def of(self, nodes: Mapping[str, Node]) -> list[Node]:
        """Those of them that have records, and that Slurm starts and ends."""
        return [nodes[name] for name in self.nodes() if name in nodes and nodes[name].is_cloud]


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A worker pod."""

    name: str
    pool: str
    uid: str = ""
    digest: str = ""  # of the template that it was made from; empty for one that is not of an elastic pool
    revision: str = ""  # of the template that it was made from, where a StatefulSet has made it
    made_at: float = 0.0  # in seconds since 1970, by Kubernetes' clock
    is_leaving: bool = False
    left_at: float = 0.0  # when it was asked to leave, by the same clock
    is_ready: bool = False
    has_ended: bool = False
    """It was evicted or refused, or its machine was shut down: nothing of it runs, and nothing will."""
    is_unscheduled: bool = False  # there is no machine for it
    trouble: str = "its slurmd has not registered"  # why its node is not there, as far as Kubernetes says


@dataclass(frozen=True, kw_only=True)
class Node(NodeRecord):
    """The record of a Slurm node."""

    goes_down = Has("POWER_DOWN", "POWER_DRAIN", "POWERING_DOWN")  # is to be powered down after its jobs
    is_planned = Has("PLANNED")  # the scheduler keeps it for a job that waits for others, too
    is_reserved = Has("RESERVED")  # a reservation has it now: Slurm would not delete its record

    @property
    def is_awaited(self) -> bool:
        """Whether a job has it that Slurm is about to power it up for, which takes it up to a second."""
        return self.is_powered_down and bool(self.states & {"ALLOCATED", "MIXED"}) and not self.goes_down

    @property
    def comes(self) -> bool:
        """Whether Slurm waits for it, or will in a moment."""
        return self.is_awaited or (self.is_coming and not self.is_off)

    @property
    def is_free(self) -> bool:
        """Whether no job is on it, and it may have one."""
        return not (self.is_busy or self.is_down or self.is_drained or self.goes_down)

    @property
    def has_nothing(self) -> bool:
        """Whether it is off, and no job waits for it."""
        return self.is_powered_down and (self.is_down or not self.is_busy)

    @property
    def is_others(self) -> bool:
        """Whether an administrator or a health check keeps jobs from it."""
        return self.is_drained and not self.reason.startswith(OURS)

    @property
    def is_set_down(self) -> bool:
        """Whether an administrator has set it down, or Slurm for his reason."""
        return self.is_down and self.reason_by != SLURM and not self.reason.startswith(OURS)


def marked(mark: str) -> str:
    """The `Extra` of a new record. slurmd writes another one with the mark that it finds (images/worker/slurmd.py)."""
    return json.dumps({MARK: mark})


def pod_of(item: Object) -> Pod:
    """A pod of the API."""
    metadata = item["metadata"]
    labels, status = metadata.get("labels") or {}, item.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    unscheduled = conditions.get("PodScheduled", {}).get("status") == "False"
    # What Kubernetes calls the time of its deletion is when its time to leave will be over.
    gone, grace = time_of(metadata.get("deletionTimestamp")), metadata.get("deletionGracePeriodSeconds") or 0
    return Pod(
        name=metadata["name"],
        pool=labels.get(WORKER_PODS, ""),
        uid=metadata.get("uid", ""),
        digest=labels.get(TEMPLATE, ""),
        revision=labels.get("controller-revision-hash", ""),
        made_at=time_of(metadata.get("creationTimestamp")),
        is_leaving="deletionTimestamp" in metadata,
        left_at=gone - grace,
        is_ready=conditions.get("Ready", {}).get("status") == "True",
        has_ended=status.get("phase") in {"Failed", "Succeeded"},
        is_unscheduled=unscheduled,
        trouble=_trouble(conditions["PodScheduled"] if unscheduled else status) if not gone else "it does not go",
    )


def _trouble(status: Object) -> str:
    """What a condition or a status says: of a container that waits (no image, a crash), else of the whole."""
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    waits = [waiting for one in containers if (waiting := (one.get("state") or {}).get("waiting"))]
    # The others wait for one that has not started.
    source = next((one for one in waits if one.get("reason") not in {"PodInitializing", "ContainerCreating"}), status)
    words = ": ".join(str(source[key]) for key in ("reason", "message") if source.get(key))
    return " ".join(words.split()) or Pod.trouble


def pool_of(item: Object, log: Callable[[str], None] = print) -> Pool | None:
    """A pool of its PodTemplate; None where somebody has written into that: without the pool, its nodes would go."""
    metadata = item["metadata"]
    try:
        annotations = metadata["annotations"]
        settings = json.loads(annotations[SETTINGS])
        return Pool(
            name=metadata["name"],
            least=int(settings["min"]),
            most=int(settings["max"]),
            conf=str(settings["conf"]),
            max_unavailable=str(annotations.get(MAX_UNAVAILABLE, "10%")),
            template=item["template"],
            uid=metadata.get("uid", ""),
            digest=str(annotations[TEMPLATE]),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        log(f"pool {metadata['name']}: its settings are not understood, and its nodes are left alone: {error!r}")
        return None


def share(limit: str, nodes: int) -> int:
    """How many of so many nodes a number or a percentage means: rounded up, and one at least; of neither, one."""
    number = limit.removesuffix("%")
    if not number.isdecimal():
        return 1
    return max(1, math.ceil(nodes * int(number) / 100) if limit.endswith("%") else int(number))
