"""What is going on in a cluster at one moment, asked of Kubernetes and of Slurm at the same time: one Snapshot.

`status` draws it, the rules of `doctor` are functions from it to findings, and the bundle writes both. What it has of
Kubernetes are the objects as kubectl prints them; what it has of Slurm is typed. Nothing is changed by looking.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from cli.kubectl import pods
from cli.kubectl.client import (
    ANSWER_SECONDS,
    Kubectl,
    complaint,
    if_slurmdbd_answers,
    in_controller,
    is_true,
    labels_of,
)
from cli.status.questions import ListedNode, SlurmNode, Wanted, ask_slurm, read_objects
from cli.text import brief
from config.cluster import ClusterConfig
from images.common.slurm_jobs import ENDED, ENVIRONMENT, Job, JobList
from images.common.slurm_records import NotUnderstoodError, expand
from images.common.slurm_runs import RecordError, rows, sacct
from slurm.names import ACTIVE, CONTROLLER_HOST, POOL_LABEL

Object = Mapping[str, Any]
"""As Kubernetes has it."""


@dataclass(frozen=True, kw_only=True)
class Pod(pods.Pod):
    """A pod, with the object that it is."""

    item: Object
    owner: str = ""
    """Name of the StatefulSet, Job or ReplicaSet that made it."""
    owner_kind: str = ""
    pool: str = ""

    @property
    def leaves(self) -> bool:
        """Whether it was deleted, and has not ended yet."""
        return self.phase == pods.LEAVING

    @property
    def is_up(self) -> bool:
        """Whether it is ready, and does not leave."""
        return self.ready and not self.leaves

    @property
    def is_done(self) -> bool:
        """Whether it has ended as it should."""
        return self.phase == "Succeeded"

    @property
    def status(self) -> Object:
        """What Kubernetes says of it."""
        found: Object = self.item.get("status", {})
        return found

    @property
    def containers(self) -> Sequence[Object]:
        """What Kubernetes says of its containers, in the order in which they start."""
        return [*self.status.get("initContainerStatuses", []), *self.status.get("containerStatuses", [])]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The whole cluster, as far as it was asked for. Every part may be missing; `unread` then says why."""

    config: ClusterConfig
    reached_by: str = "kubectl"
    """kubectl with what leads into this cluster, as a shell takes it: its own default may be another cluster."""
    now: float = 0.0
    """By the clock of the controller or of this machine, whichever is behind, in seconds since 1970."""
    wanted_configuration: str = ""
    """Hash of the configuration that the stack file makes."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Part -> why it could not be read. A part that is read in part is here as well."""

    objects: Mapping[str, Sequence[Object]] = field(default_factory=dict)
    """By kind: ours, and machines, leases, events and the namespace."""
    slurmctld: str = ""
    """Why slurmctld does not answer, in its own words; empty if it does, or was not asked."""
    slurmdbd_answers: bool | None = None
    """None where it was not asked."""
    configuration: Mapping[str, Any] | None = None
    """The configuration agent's state."""
    room: tuple[int, int] | None = None
    """Bytes that are free on slurmctld's state volume, and all of them."""
    sinfo: tuple[ListedNode, ...] = ()
    nodes: tuple[SlurmNode, ...] = ()
    jobs: tuple[Job, ...] = ()
    partitions: Mapping[str, str] = field(default_factory=dict)
    """Name -> state of those that do not take and start jobs, as `scontrol` says."""

    @property
    def namespace(self) -> str:
        """Where it is."""
        return self.config.cluster.namespace

    def knows(self, *parts: str) -> bool:
        """Whether all of these parts were read whole, so that what is not there does not exist."""
        return not any(part in self.unread for part in parts)

    def of(self, *kinds: str) -> list[Object]:
        """The objects of these kinds."""
        return [item for kind in kinds for item in self.objects.get(kind, ())]

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """The cluster's pods."""
        return tuple(map(_pod, self.of("Pod")))

    def warned(self, item: Object, *, for_seconds: float = -math.inf) -> tuple[str, ...]:
        """Events of Kubernetes about an object, the last one first, each once. `for_seconds`: only those that last."""
        found = self._warnings.get(item["metadata"].get("uid", ""), ())
        return tuple(dict.fromkeys(text for _, first, text in found if self.now - first >= for_seconds))

    @cached_property
    def _warnings(self) -> Mapping[str, Sequence[tuple[float, float, str]]]:
        """With last and first time, by the uid of what they are about: its name may be that of an earlier pod."""
        found: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
        for event in self.of("Event"):
            made = event.get("eventTime") or event["metadata"].get("creationTimestamp")
            last, first = (at(event.get(name) or made) for name in ("lastTimestamp", "firstTimestamp"))
            text = f"{event.get('reason', '')}: {event.get('message', '')}"
            found[event["involvedObject"].get("uid", "")].append((last, first, text))
        return {uid: sorted(texts, reverse=True) for uid, texts in found.items()}

    def has_lost(self, pod: Pod) -> bool:
        """Whether Kubernetes hears nothing of a pod's machine."""
        for machine in self.of("Node"):
            if machine["metadata"]["name"] == pod.node:
                return not is_true(machine, "Ready")
        # Who does not see machines sees what Kubernetes has made of the pod: kubelet says both alike.
        containers = pod.status.get("containerStatuses", [])
        marked = condition(pod.item, "Ready").get("status") == "False"
        return marked and bool(containers) and all(one["ready"] for one in containers)

    @property
    def slurmctld_lost_with(self) -> str:
        """The machine with which slurmctld is down; empty where it answers, or its machine does."""
        pod, silent = self.pod(self.active_controller), self.slurmctld or "slurm" in self.unread
        return pod.node if pod is not None and silent and self.has_lost(pod) else ""

    @cached_property
    def active_controller(self) -> str:
        """The pod that slurmctld runs in, or was last said to: of two the one that has the label."""
        return next(
            (pod.name for pod in self.pods if ACTIVE in pod.item["metadata"].get("labels", {})), CONTROLLER_HOST
        )

    def pod(self, name: str) -> Pod | None:
        """The pod of this name."""
        return self._named.get(name)

    @cached_property
    def _named(self) -> Mapping[str, Pod]:
        return {pod.name: pod for pod in self.pods}

    @cached_property
    def jobs_on(self) -> Mapping[str, Sequence[Job]]:
        """Node -> jobs that run there. Looked up for each of a thousand pods, of ten thousand jobs.

        One that is completing has ended: where its machine is lost, it stays so until Slurm gives the node up.
        """
        found: dict[str, list[Job]] = defaultdict(list)
        for job in self.jobs:
            for node in job.nodes if job.state != ENDED else ():
                found[node].append(job)
        return found

    def kubectl(self, rest: str) -> str:
        """A kubectl command line in the cluster's namespace: `logs POD` -> `kubectl logs -n slurm POD`."""
        verb, _, more = rest.partition(" ")
        return f"kubectl {verb} -n {self.namespace} {more}"

    def slurm(self, command: str) -> str:
        """A command of Slurm's, beside slurmctld."""
        return f"kubectl exec -n {self.namespace} service/controller-0 -c slurmctld -- {command}"


def at(stamp: str | None) -> float:
    """A time of Kubernetes' in seconds since 1970; 0 of none."""
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0


def condition(item: Object, kind: str) -> Object:
    """What Kubernetes says of an object in this respect; empty where it says nothing."""
    found: Sequence[Object] = item.get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == kind), {})


def lost_slurmctld(machine: str, kubectl: str) -> tuple[str, str]:
    """What there is to say where slurmctld is down with its machine, and what mends it. `kubectl`: to be copied.

    Once the Node is gone all of its pods start elsewhere: the database and slurmdbd may be lost with slurmctld.
    """
    cause = f"slurmctld is down with its machine {machine}: no other one is started while that may still run"
    command = f"{kubectl} delete node {machine}"
    return cause, f"only once {machine} is really off, as two slurmctld on one state lose jobs: {command}"


def take(kubectl: Kubectl, config: ClusterConfig, wanted: Wanted) -> Snapshot:
    """Ask all of it at the same time. What does not answer, or may not be read, is in `unread`.

    Raises Failure only if kubectl cannot be run.
    """
    namespace, here = config.cluster.namespace, time.time()
    with ThreadPoolExecutor() as pool:  # each is a process that mostly waits
        asked = [
            pool.submit(read_objects, kubectl, namespace, kinds, seconds=wanted.patience) for kinds in wanted.kinds
        ]
        slurm = pool.submit(ask_slurm, kubectl, namespace, wanted, accounting=config.accounting.enabled)
        # Loaded while they run: templates take as long as one of them.
        from slurm.conf import config_hash, render  # noqa: PLC0415

        configuration = config_hash(render(config))
    objects: dict[str, list[Object]] = defaultdict(list)
    unread: dict[str, str] = {}
    for answer in asked:
        found, missing = answer.result()
        unread |= missing
        for item in found:
            kind = item["kind"]
            if (
                kind in {"Node", "Lease", "Event", "Namespace"}
                or labels_of(item).get("app.kubernetes.io/part-of") == "slurmstack"
            ):
                objects[kind].append(item)
    of_slurm, silent = slurm.result()
    # One that is ahead, here or there, would have a pod deleted by force that has just begun to end.
    now = min(of_slurm.pop("clock", 0.0) or here, here)
    return Snapshot(
        config=config,
        reached_by=kubectl.shown,
        now=now,
        wanted_configuration=configuration,
        unread={**unread, **silent},
        objects=objects,
        **of_slurm,
    )


def _pod(item: Object) -> Pod:
    owner: Object = next(iter(item["metadata"].get("ownerReferences", [])), {})
    return Pod(
        **vars(pods.pod_of(item)),
        item=item,
        owner=owner.get("name", ""),
        owner_kind=owner.get("kind", ""),
        pool=labels_of(item).get(POOL_LABEL, ""),
    )


# ---------------------------------------------------------------- one job, for `logs --job` and `doctor job`

JOB = r"\d{1,10}([_+]\d{1,10})?"
"""What people may call a job: a number, the task of an array, or a part of a heterogeneous job."""

JOBS = JobList("id", "number", "user", "partitions", "state", "reason", "submitted", "start", "end", "node_list")

FIELDS = (
    "JobID", "JobIDRaw", "User", "Partition", "State", "Submit", "Eligible", "Start", "End", "NodeList",
    "ExitCode", "Reason", "UID", "JobName",
)  # fmt: skip
"""Of sacct. A job's name may be any text, so it comes last."""


@dataclass(frozen=True, kw_only=True)
class KnownJob:
    """A job, or the tasks of an array, as far as Slurm knows it."""

    id: str
    """As people write it."""
    present: tuple[Job, ...]
    """As slurmctld has it; nothing some minutes after its end."""
    runs: tuple[Mapping[str, str], ...]
    """Its records in accounting, by FIELDS: each run of it, and the steps of that. Times are seconds since 1970."""
    missing: Mapping[str, str]
    """Who could not be asked, and why."""

    @property
    def ids(self) -> frozenset[str]:
        """All numbers that stand for it in logs: of a task of an array, its own too."""
        numbers = {*(run["JobIDRaw"].partition(".")[0] for run in self.runs), *(one.number for one in self.present)}
        return frozenset({self.id, *numbers})

    @property
    def last(self) -> Mapping[str, str] | None:
        """The record of its last run."""
        return next((run for run in reversed(self.runs) if "." not in run["JobID"]), None)

    @property
    def nodes(self) -> frozenset[str]:
        """Where it ran, also before it was queued again."""
        lists = {*(run["NodeList"] for run in self.runs), *(one.node_list for one in self.present)} - {"None assigned"}
        return frozenset(name for listed in lists for name in expand(listed))


def read_job(
    kubectl: Kubectl, namespace: str, job: str, *, accounting: bool, seconds: float = ANSWER_SECONDS
) -> KnownJob:
    """Ask slurmctld for what is, and slurmdbd for what has been. Nothing is raised.

    `job`: a number that the caller has checked. `seconds`: for slurmctld; slurmdbd has twice as many.
    """
    words = ("env", *(f"{name}={value}" for name, value in ENVIRONMENT.items()), *JOBS.command)
    shown = in_controller(kubectl, namespace, *words, "--states=all", f"--jobs={job}", seconds=seconds)
    present: list[Job] = []
    runs: list[dict[str, str]] = []
    missing: dict[str, str] = {}
    try:
        if shown.returncode == 0:
            present = list(JOBS.read(shown.stdout))
        elif "Invalid job id" not in shown.stderr:
            missing["squeue"] = brief(complaint(shown))
    except NotUnderstoodError as error:
        missing["squeue"] = str(error)
    if accounting:
        asking = if_slurmdbd_answers([*sacct(FIELDS), "--duplicates", f"--jobs={job}"])
        recorded = in_controller(kubectl, namespace, *asking, seconds=2 * seconds)
        try:
            if recorded.returncode == 0:
                runs = list(rows(recorded.stdout.splitlines(), FIELDS))
            else:
                missing["sacct"] = brief(complaint(recorded))
        except RecordError as error:
            missing["sacct"] = str(error)
    return KnownJob(id=job, present=tuple(present), runs=tuple(runs), missing=missing)
