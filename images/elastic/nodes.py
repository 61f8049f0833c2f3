"""The nodes of pools in Slurm, and their pods in Kubernetes: seen and changed with Slurm's own commands and the API."""

from __future__ import annotations

import http.client
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from images.common.command import Runner, run
from images.common.kubernetes import WORKER_PODS, Kube, KubeError, Object, time_of
from images.common.slurm_jobs import ENVIRONMENT, JobList
from images.common.slurm_node import ELASTIC_PARTITION, OURS, TOPOLOGY_REASON, Commands, shows_switch_tree
from images.common.slurm_records import MARK, Has, NodeRecord, compress, node_records

SETTINGS: Final = "slurmstack/elastic"  # annotation of a pool's PodTemplate, as slurm/elastic.py writes it
MAX_UNAVAILABLE: Final = "slurmstack/max-unavailable"  # and of a StatefulSet: nodes that may be away for new pods
TEMPLATE: Final = "slurmstack/template"  # the digest of a template, as it was applied: also a label of its pods
SLURM: Final = "slurm"  # who sets slurmctld's own reasons
FEATURES: Final = "Feature="  # in what slurmctld is told of a node
TIMEOUT_SECONDS: Final = 30.0
AT_ONCE: Final = 16  # requests: a job of a thousand nodes asks for a thousand pods
SUBDOMAIN: Final = "nodes"  # the headless Service that gives each pod a name in DNS (slurm/names.py)
_OF_US: Final = re.compile(r"[a-z0-9][a-z0-9-]*-\d+")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """An elastic pool, as the stack file wants it."""

    name: str
    least: int  # nodes that stay up without jobs
    most: int  # nodes that there are records of
    conf: str  # what slurmctld is told of each node: `CPUs=8 RealMemory=...`
    mark: str  # what the records of its nodes say: another one is of an older configuration
    max_unavailable: str = "10%"  # nodes powered down at once for new pods: a number, or a part of those with pods
    template: Mapping[str, Any] = field(default_factory=dict, compare=False)  # metadata and specification of a pod
    uid: str = ""  # of the PodTemplate, whose pods go when it goes
    digest: str = ""

    @property
    def features(self) -> str:
        """Of its nodes, with commas; empty: none."""
        return next((word.partition("=")[2] for word in self.conf.split() if word.startswith(FEATURES)), "")

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
    has_ended: bool = False  # it was evicted or refused, or its machine was shut down: nothing of it will run
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
            mark=str(settings["mark"]),
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


class Nodes(Commands):
    """All commands about nodes. A change returns why it was refused, or nothing."""

    def __init__(self, log: Callable[[str], None], runner: Runner = run) -> None:
        super().__init__(runner, TIMEOUT_SECONDS, ENVIRONMENT)
        self._log = log

    def read(self) -> dict[str, Node]:
        """All records but an administrator's own, by name. Raises ControllerUnreachableError, NotUnderstoodError."""
        output = self.answer("scontrol", "show", "nodes", "--all", "--json")
        records = [] if output.startswith("No nodes") else node_records(output, Node)
        return {node.name: node for node in records if _OF_US.fullmatch(node.name)}

    def ends(self) -> dict[str, float]:
        """Node -> when its jobs end at the latest, in seconds since 1970. Raises as `read`."""
        question, found = JobList("end", "node_list"), dict[str, float]()
        for job in question.read(self.answer(*question.command, "--states=running")):
            for name in job.nodes:
                found[name] = max(found.get(name, 0.0), math.inf if job.end is None else job.end)
        return found

    def create(self, pool: Pool, names: Collection[str]) -> str:
        """Make records of nodes that are powered down. Raises ControllerUnreachableError.

        None where slurmctld does not have the pool's partition: the configuration agent would delete it. 24.11 gives it
        the place of a deleted one, which no job may have before a power_down_force (`share_node_bitmap`). Where there
        is a switch tree, it gets its features, by which partitions find it, with `place`.
        """
        conf, partition = pool.conf.split(), f"{ELASTIC_PARTITION}{pool.name}"
        if not self.run("scontrol", "show", "partition", partition).ok:
            return f"{compress(names)}: no records before slurmctld has the pool in its configuration"
        if shows_switch_tree(self.answer("scontrol", "show", "config")):
            conf = [word for word in conf if not word.startswith(FEATURES)]
        refused = self._do("create", names, "state=CLOUD", *conf)
        extra = json.dumps({MARK: pool.mark})  # slurmd writes another one with the mark that it is told
        return refused or self._do("update", names, "state=power_down_force", f"extra={extra}")

    def place(self, pool: Pool, names: Collection[str]) -> str:
        """Let new records be found, drained until the configuration agent has put them into the switch tree.

        A job that tries a node that is in no switch is put aside for good, and no record can be made drained.
        """
        how = ("state=drain", f"reason={TOPOLOGY_REASON}", f"features={pool.features}")
        return self._do("update", names, *how)

    def change(self, names: Iterable[str], state: str, reason: str) -> str:
        """Give nodes another state, or `delete` their records."""
        if state == "delete":
            return self._do("delete", names)
        return self._do("update", names, f"state={state}", *([f"reason={reason}"] if reason else []))

    def _do(self, what: str, names: Iterable[str], *how: str) -> str:
        argv = ["scontrol", what, f"nodename={compress(names)}", *how]
        done = self.run(*argv)
        if done.ok:
            self._log(" ".join(argv))
        return "" if done.ok else f"{' '.join(argv)}: {done.message}"


@dataclass
class Pods:
    """Makes and ends pods. What was made already, and what is gone, is no failure."""

    _kube: Kube
    _log: Callable[[str], None]

    def there(self) -> frozenset[str] | None:
        """Names of the pods that the API server has now, whatever a watch has told; None: it does not answer."""
        try:
            return frozenset(item["metadata"]["name"] for item in self._kube.list_workers())
        except KubeError:
            return None  # which who follows the pods logs

    def start(self, pool: Pool, names: Iterable[str]) -> str:
        """Make the pods of these nodes; why Kubernetes refuses one, or empty."""
        path = self._kube.path("pods")
        return self._all("make", names, lambda name: self._kube.send("POST", path, manifest(pool, name)))

    def end(self, pods: Mapping[str, Pod]) -> str:
        """End pods, each after its jobs; those of which nothing runs, at once. Why not, or empty."""
        return self._all(
            "end", pods, lambda name: self._kube.delete_pod(name, pods[name].uid, force=pods[name].has_ended)
        )

    def _all(self, what: str, names: Iterable[str], do: Callable[[str], None]) -> str:
        """What went wrong first, after which no more is done: a used-up quota would refuse each of a thousand."""
        self._log(f"{what} the pods {compress(names)}")
        wrong: list[str] = []

        def once(name: str) -> None:
            try:
                if not wrong:
                    do(name)
            except KubeError as error:
                problem = f"cannot {what} the pod {name}: {error}"
                if error.status is None or (what == "make" and error.status != http.client.CONFLICT):
                    wrong.append(problem)
                elif what == "end":  # the others may go
                    self._log(problem)

        with ThreadPoolExecutor(max_workers=AT_ONCE) as workers:
            list(workers.map(once, names))
        return wrong[0] if wrong else ""


def manifest(pool: Pool, name: str) -> Mapping[str, Any]:
    """The pod of one node. It goes with its pool's template, after its jobs."""
    declared = pool.template.get("metadata") or {}
    labels = {**(declared.get("labels") or {}), TEMPLATE: pool.digest}
    owner = {"apiVersion": "v1", "kind": "PodTemplate", "name": pool.name, "uid": pool.uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**declared, "name": name, "labels": labels, "ownerReferences": [owner]},
        "spec": {**pool.template["spec"], "hostname": name, "subdomain": SUBDOMAIN},
    }
