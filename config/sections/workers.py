"""`slurmstack:worker_nodes`: pools of Slurm compute nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import ceil
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag

from config.base import Cpu, Matching, Quantity, Section, Span, Volume, at_least, span_of
from config.names import LabelKey, LabelValue, ObjectName, dns_label
from config.sections.machines import MAX_GROUP_SIZE, Gpus, GpusOfNode, Machines, from_preset

MAX_POOL_SIZE = 5000
"""Nodes in one pool at most: the size that Kubernetes itself is tested to (5,000 nodes in a cluster)."""

MIN_WORKER_MEMORY = "256Mi"
"""Memory of a worker at least: slurmd, munged and the smallest job."""

RESERVED_POOL_NAMES = frozenset({"controller", "login", "nodes", "all", "slurmdbd", "database", "rest"})
"""Names of our own workloads and Services, and `ALL`, which Slurm reads as every node."""


def _not_ours(name: str) -> str:
    if name in RESERVED_POOL_NAMES:
        raise ValueError(f"is reserved; these names are taken: {', '.join(sorted(RESERVED_POOL_NAMES))}")
    return name


PoolName = Annotated[str, dns_label(longest=40), AfterValidator(_not_ours)]
"""A DNS label of at most 40 characters: with `-<number>` it is the name of a node, a pod and a host."""

Feature = Annotated[
    str,
    Matching(
        r"^[A-Za-z][A-Za-z0-9_.-]*$",
        "is not a Slurm feature name: letters, digits, '_', '.' and '-', beginning with a letter",
    ),
    Field(max_length=64),
]


def _preset_or_resources(schema: dict[str, Any]) -> None:
    """A pool says what its workers have, or which machines they fill."""
    schema["required"] = [name for name in schema["required"] if name != "resources"]
    schema["anyOf"] = [
        {"required": ["platform", "preset"]},
        {"required": ["resources"], "properties": {"resources": {"required": ["cpus", "memory"]}}},
    ]


class Resources(Section):
    """What one worker offers to Slurm. Where the cloud makes the machines, the preset gives what is left out."""

    model_config = ConfigDict(json_schema_extra=from_preset)

    cpus: int = Field(ge=1, le=4096, strict=True)
    """CPUs of one node, as Slurm counts them (`CPUs=`). Required with the kind `existing`."""
    memory: Annotated[Quantity, at_least(MIN_WORKER_MEMORY, "slurmd and a job")]
    """Memory of one worker pod. Required with the kind `existing`. Slurm gets what is left after slurmd's own need
    (`RealMemory=`)."""
    gpus: GpusOfNode = Gpus(count=0)
    """GPUs of one node: how many, a list of their types, or a map that also says whose they are and how they are
    divided."""
    cpu_request: Cpu | None = None
    """CPU that the pod asks Kubernetes for, for example `500m`. Default: `cpus`; on the local
    cluster, whose nodes share one machine, a twentieth of it."""


class Toleration(Section):
    """A taint of the Kubernetes nodes that the worker pods may ignore."""

    key: LabelKey
    """Key of the taint."""
    value: LabelValue | None = None
    """Value of the taint. Left out: any value."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Left out: all effects."""


def _machine_path(path: str) -> str:
    if not re.fullmatch(r"(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+", path):
        raise ValueError("is not an absolute path of plain names, without `..`, such as /mnt/nvme")
    return path


class Scratch(Section):
    """A volume for jobs' /tmp that is larger or faster than the machine's own disk: either a claim or a directory."""

    size: Annotated[Quantity, at_least("1Gi", "a file system of its own")]
    """Size of the volume of one worker. Of a directory of the machine: what there is at least. A worker that finds less
    does not start, and nothing keeps it from using more."""
    storage_class: ObjectName | None = None
    """Class of a volume that is made for each pod and deleted with it."""
    host_path: Annotated[str, AfterValidator(_machine_path)] | None = None
    """Directory of the machine, where its disk is mounted; each pod has a directory of its own in it. It must be there.
    Not with `security: baseline`."""

    def _problem(self) -> str | None:
        if (self.storage_class is None) == (self.host_path is None):
            return (
                "must have exactly one of storage_class, for a volume that comes and goes with its pod, and host_path, "
                "for a directory of the machine"
            )
        return None


class Range(Section):
    """Bounds of a pool that follows the queue: Slurm starts its nodes for jobs and ends them when they are idle."""

    min: int = Field(default=0, ge=0, le=MAX_POOL_SIZE, strict=True)
    """Nodes that are kept even while no job is there."""
    max: int = Field(ge=1, le=MAX_POOL_SIZE, strict=True)
    """Nodes at most. Users see all of them: those that are off are `idle~` in sinfo, and take jobs."""

    def _problem(self) -> str | None:
        return f"has min {self.min}, which is more than its max, {self.max}" if self.min > self.max else None


def _form(given: object) -> str:
    """Which of its two forms a size has: these tags are not said in what is complained of (config/errors.py)."""
    return "[range]" if isinstance(given, Mapping | Range) else "[number]"


_ELASTIC_ALONE = ("idle_timeout", "resume_timeout")


class WorkerPool(Machines):
    """Slurm nodes of one kind, named `<pool>-0`, `<pool>-1`, ..."""

    model_config = ConfigDict(json_schema_extra=_preset_or_resources)

    size: Annotated[
        Annotated[Annotated[int, Field(strict=True, ge=0, le=MAX_POOL_SIZE)], Tag("[number]")]
        | Annotated[Range, Tag("[range]")],
        Discriminator(_form),
    ]
    """Number of nodes: changing it and applying is the whole scaling procedure; zero is allowed. Or `{min, max}` for an
    elastic pool, whose nodes Slurm starts when jobs need them and ends when they are idle."""
    idle_timeout: Annotated[Span, span_of(10, 30 * 86400)] = "10m"
    """Of an elastic pool: how long a node stays when its last job has ended."""
    resume_timeout: Annotated[Span, span_of(20, 2 * 3600)] = "15m"
    """Of an elastic pool: how long a node may take to be there. It counts from the machine's start to
    slurmd's. After it the job goes back to the queue, the node is given up, and the pool pauses: for 30 seconds at
    first, up to ten minutes."""
    resources: Resources
    """What one node has. Required with the kind `existing`. Default where the cloud makes the machines: what `preset`
    leaves beside the system's need."""
    weight: int | None = Field(default=None, ge=0, le=2**32 - 3, strict=True)
    """`Weight` in Slurm: of the free nodes that fit, jobs get those of the smallest one first. A change is made in
    place. Default: 1, of elastic pools 1000."""
    features: tuple[Feature, ...] = ()
    """Slurm features of the nodes, for `sbatch --constraint`. The pool's name is always one of them."""
    drain_timeout: int = Field(default=7 * 24 * 3600, ge=30, le=365 * 24 * 3600, strict=True)
    """Seconds that a leaving node may wait for its jobs to end before Kubernetes kills it. Default: 7 days."""
    security: Literal["confined", "baseline"] = "confined"
    """`confined`: jobs run in the jail, for which the pod has CAP_SYS_ADMIN. `baseline`: no jail and no capability for
    it; jobs see the worker's image and the shared volumes of `mounts`, and no homes."""
    confinement: Literal["auto", "required", "off"] = "auto"
    """Whether a job is held to the cores, memory and devices that it asked for, by cgroups of its own. `auto`: where
    the machine lets the pod do so, which takes version 2 of cgroups; `slurmstack status` says which workers do.
    `required`: a worker that cannot does not start, and says why; its pod has to ask Kubernetes for all its CPUs.
    `off`: Slurm counts, and nothing holds."""
    containers: bool = Field(default=False, strict=True)
    """Whether jobs may start containers. With `srun --user-namespace` their tasks can make user namespaces, which the
    kernel otherwise makes for nobody in the jail. It opens more of the machine's kernel to users: what the root of a
    user namespace may ask of it. Takes `security: confined`, and a machine whose settings let users have them."""
    shared_memory: Quantity | None = None
    """Size of `/dev/shm`, of the pod and of each job in it; counted in the memory. Default: half of the memory."""
    tmp: Volume = "100Gi"
    """Size of `/tmp` of one worker, on its machine's disk; at least 100Mi. Kubernetes ends a pod that has more in
    it, with its jobs: give pools whose jobs keep much there what their machines have. With `scratch`: of slurmd's own
    directory alone, which has this size in any case."""
    scratch: Scratch | None = None
    """A volume for jobs' `/tmp` (`$TMPDIR`), such as a local NVMe disk. Default: the machine's disk, see `tmp`."""
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict)
    """Labels that a Kubernetes node must have to carry these workers."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints of the Kubernetes nodes that these workers may ignore."""
    priority_class: ObjectName | None = None
    """PriorityClass of the workers. It says which pods Kubernetes ends for others where machines are full, and must be
    there. Default: `cluster.priority_class`."""

    def _problem(self) -> str | None:
        found = self._without_the_jail() if self.security == "baseline" else None
        gpus = self.resources.gpus
        mixed = "mig" if gpus.mig else "kinds" if len(gpus.kinds) > 1 else ""
        if found is None and mixed and self.confinement != "required":
            # Slurm names a job's GPUs by number, those of the first type first. Only a job that can open no other GPU
            # or part finds its own, as the first that it can open.
            return (
                f"has resources.gpus.{mixed} and confinement: {self.confinement}; jobs find their own GPUs only where "
                "they cannot open the others. Set confinement: required"
            )
        return found or self._problem_of_size()

    def _without_the_jail(self) -> str | None:
        """What pods with `security: baseline` cannot have: cgroups, namespaces, anything of the machine."""
        wanted = {
            "confinement: required": self.confinement == "required",
            "containers: true": self.containers,
            "scratch.host_path": self.scratch is not None and self.scratch.host_path is not None,
            "resources.gpus.job_files": self.resources.gpus.job_files,
        }
        found = " and ".join(key for key, there in wanted.items() if there)
        return f"has {found}, which takes security: confined; use that, or leave it out" if found else None

    def _problem_of_size(self) -> str | None:
        given = [name for name in _ELASTIC_ALONE if name in self.model_fields_set]
        if not given or self.is_elastic:
            return None
        elastic = f"{{min: 0, max: {self.most or 1}}}"
        return f"has {given[0]}, which is for elastic pools; write size: {elastic}, or leave it out"

    @property
    def is_elastic(self) -> bool:
        """Whether Slurm starts and ends its nodes."""
        return isinstance(self.size, Range)

    @property
    def most(self) -> int:
        """Nodes that there can be."""
        return self.size.max if isinstance(self.size, Range) else self.size

    @property
    def gives_back(self) -> bool:
        """Whether its nodes put their jobs back into the queue when their pods are told to go."""
        return self.preemptible and self.is_elastic

    @property
    def least(self) -> int:
        """Nodes that there are in any case."""
        return self.size.min if isinstance(self.size, Range) else self.size

    @property
    def gpu_kinds(self) -> dict[str, int]:
        """How many GPUs, or parts of them, a node has of each type, in Slurm's order; a type may be empty."""
        gpus = self.resources.gpus
        if gpus.mig:  # as the device plugin writes profiles: a plus is allowed neither there nor in `--gpus`
            return {profile.replace("+", "."): count for profile, count in sorted(gpus.mig.items())}
        if gpus.kinds:
            return {kind.type: kind.count for kind in gpus.kinds}
        named = re.match(r"gpu-([a-z0-9]+)", self.platform or "")
        return {gpus.type or (named[1] if named else ""): gpus.count} if gpus.count else {}

    @property
    def confines(self) -> bool:
        """Whether its workers hold jobs to what they asked for, where their machines can."""
        return self.security == "confined" and self.confinement != "off"

    @property
    def node_groups(self) -> int:
        """Node groups that hold the machines, where the cloud makes them: 100 in each at most, and at least one."""
        return max(self.autoscaling.groups, ceil(self.most / MAX_GROUP_SIZE))

    @property
    def kept_in_group(self) -> int:
        """Machines that each node group keeps even without pods.

        Of an empty group the autoscaler knows GPUs, but no InfiniBand devices: workers that ask for these would wait
        for ever. One machine is enough for it to learn from. (Reported of Nebius' autoscaler in 2026; its upstream is
        the same.)
        """
        return 1 if self.gpu_cluster is not None and self.most else 0
