"""What is known of a running cluster at one moment. Every part may be missing; `unread` then says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from cli.health.nodes import Node as CheckedNode
from cli.health.nodes import node_of
from images.common.health.slurm import Record
from images.common.slurm_jobs import Job


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container that does not run as it should, or did not a while ago."""

    name: str
    waiting: str = ""
    """Kubernetes' word for why it does not run: `ImagePullBackOff`, `CrashLoopBackOff`, ...; empty if it runs."""
    message: str = ""
    restarts: int = 0
    ended: str = ""
    """Why it ended the last time: `OOMKilled`, `Error`, ..."""
    code: int = 0
    ended_at: float = 0.0
    """Seconds since 1970; 0 if it never ended."""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod, with what Kubernetes complains about."""

    name: str
    component: str
    owner: str = ""
    """Name of the StatefulSet, Job or ReplicaSet that made it."""
    owner_kind: str = ""
    phase: str = ""
    why: str = ""
    """Kubernetes' reason for the phase: `Evicted`, `NodeLost`."""
    message: str = ""
    ready: bool = False
    machine: str = ""
    unschedulable: str = ""
    """What the scheduler says, while there is no machine for it."""
    leaving: bool = False
    killed_at: float = 0.0
    """When a pod that leaves is ended at the latest, in seconds since 1970."""
    created_at: float = 0.0
    placed_at: float = 0.0
    """Since when it has a machine; 0 if it has none."""
    ready_at: float = 0.0
    """Since when it is ready; 0 if it is not."""
    containers: tuple[Container, ...] = ()
    warnings: tuple[str, ...] = ()
    """Events of Kubernetes about it, the last one first."""

    @property
    def is_done(self) -> bool:
        """Whether it has ended as it should."""
        return self.phase == "Succeeded"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """What makes pods: a StatefulSet, a Deployment or a Job."""

    kind: str
    name: str
    component: str
    wanted: int = 0
    failed: str = ""
    """Of a Job that has failed: why."""
    is_done: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim."""

    name: str
    phase: str
    storage_class: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A Kubernetes node."""

    name: str
    ready: bool
    pressure: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class SlurmNode(Record):
    """A node of Slurm."""

    now: float = 0.0
    """When this was read, by the controller's clock."""

    @cached_property
    def checked(self) -> CheckedNode:
        """What its health checks say."""
        return node_of(self, self.now)

    @property
    def gets_no_jobs(self) -> bool:
        """Whether it is closed, or Slurm does not take it as it is."""
        return bool(self.states & {"DRAIN", "DOWN", "FAIL", "ERROR", "INVALID_REG", "INVAL", "UNKNOWN"})

    @property
    def state(self) -> str:
        """As `sinfo` would write it, roughly."""
        return "+".join(sorted(self.states - {"DYNAMIC_NORM"})).lower()


@dataclass(frozen=True, kw_only=True)
class Pool:
    """What the stack file wants of a pool."""

    size: int
    """Nodes at most."""
    elastic: bool = False


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The lock of an `up` or `destroy` of the kubectl way."""

    holder: str
    age: float
    """Seconds since it was taken."""
    died: bool
    """Whether the holder was a process of this machine, and has ended."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The whole cluster."""

    namespace: str
    reached_by: str = "kubectl"
    """kubectl with what leads into this cluster, as a shell takes it: its own default may be another cluster."""
    now: float
    """By the clock of the controller or of this machine, whichever is behind, in seconds since 1970."""
    pools: Mapping[str, Pool] = field(default_factory=dict)
    wanted_configuration: str = ""
    """Hash of the configuration that the stack file makes."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Part -> why it could not be read. A part that is read in part is here as well."""

    pods: tuple[Pod, ...] = ()
    owners: tuple[Owner, ...] = ()
    claims: tuple[Claim, ...] = ()
    machines: tuple[Machine, ...] = ()
    lease: Lease | None = None
    restore: tuple[str, str] | None = None
    """Why Slurm is stopped, and the command that starts it, where a restore has stopped it."""

    slurmctld: str = ""
    """Why slurmctld does not answer, in its own words; empty if it does, or was not asked."""
    nodes: tuple[SlurmNode, ...] = ()
    jobs: tuple[Job, ...] = ()
    partitions: Mapping[str, str] = field(default_factory=dict)
    """Name -> state of those that do not take and start jobs, as `scontrol` says."""
    configuration: Mapping[str, Any] = field(default_factory=dict)
    """The configuration agent's state."""
    slurmdbd_answers: bool | None = None
    job: Mapping[str, Any] | None = None
    """The one that was asked about by its number, as `scontrol show job --json` has it."""
    past: tuple[str, ...] = ()
    """The same from accounting: state, exit code, nodes, start, end, reason."""

    def knows(self, *parts: str) -> bool:
        """Whether all of these parts were read whole, so that what is not there does not exist."""
        return not any(part in self.unread for part in parts)

    @cached_property
    def jobs_on(self) -> Mapping[str, Sequence[Job]]:
        """Node -> jobs that run there. Looked up for each of a thousand pods, of ten thousand jobs."""
        found: dict[str, list[Job]] = {}
        for job in self.jobs:
            for node in job.nodes:
                found.setdefault(node, []).append(job)
        return found

    def pod(self, name: str) -> Pod | None:
        """The pod of this name."""
        return next((pod for pod in self.pods if pod.name == name), None)

    def kubectl(self, rest: str) -> str:
        """A kubectl command line in the cluster's namespace: `logs POD` -> `kubectl logs -n slurm POD`."""
        verb, _, more = rest.partition(" ")
        return f"kubectl {verb} -n {self.namespace} {more}"

    def slurm(self, command: str) -> str:
        """A command of Slurm's, beside slurmctld."""
        return f"kubectl exec -n {self.namespace} service/controller-0 -c slurmctld -- {command}"
