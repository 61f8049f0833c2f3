"""Parts of a pool: its GPUs, and what is asked of a cloud that makes machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from config.base import PART_SCHEMA, Matching, Quantity, Section, amount_or_part

DiskType = Literal["NETWORK_SSD", "NETWORK_HDD", "NETWORK_SSD_NON_REPLICATED", "NETWORK_SSD_IO_M3"]

MAX_GROUP_SIZE = 100
"""Nodes of one node group at most (Nebius API, `fixed_node_count` and `max_node_count`: 0..100)."""


class BootDisk(Section):
    """The disk that a machine starts from; container images and `emptyDir` volumes are on it too."""

    type: DiskType = "NETWORK_SSD"
    """Kind of disk. NETWORK_SSD_NON_REPLICATED and NETWORK_SSD_IO_M3 come in steps of 93Gi."""
    size: Quantity = "128Gi"
    """Capacity; at least 64Gi."""


class GpuCluster(Section):
    """The InfiniBand fabric that connects the machines of a pool."""

    infiniband_fabric: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)
    """Fabric as the cloud names it, for example `fabric-6`. Pools that name the same one share one GPU cluster."""
    id: str | None = Field(default=None, pattern=r"^computegpucluster-[a-z0-9-]+$")
    """An existing GPU cluster instead of a new one."""

    def _problem(self) -> str | None:
        if (self.infiniband_fabric is None) == (self.id is None):
            return "needs exactly one of infiniband_fabric (a new GPU cluster) and id (an existing one)"
        return None


class Reservation(Section):
    """Whether machines come out of reserved capacity."""

    policy: Literal["AUTO", "STRICT", "FORBID"] = "AUTO"
    """AUTO: reserved capacity first, then other; STRICT: reserved only; FORBID: never reserved."""
    ids: tuple[Annotated[str, Field(pattern=r"^[a-z0-9]+-[a-z0-9-]+$")], ...] = ()
    """Capacity block groups to take from, in this order. None: any that fits."""


class Autoscaling(Section):
    """Node groups, which follow the worker pods. A machine with a worker on it is never taken away."""

    groups: int = Field(default=1, ge=1, le=50, strict=True)
    """Node groups at least; a pool has one for each hundred of `size` anyway. A group that goes takes its machines away
    whatever runs on them: keep the number when `size` falls below a hundred, and lower it when no worker is there."""


CountOrPercent = Annotated[int | str, amount_or_part("machines", least=1, most=MAX_GROUP_SIZE), PART_SCHEMA]


class UpdateStrategy(Section):
    """How a node group replaces its machines when their template changes. Each waits for its jobs, as in a drain."""

    max_unavailable: CountOrPercent = 1
    """Machines that may be away at once: a number or a percentage (rounded down)."""


class LocalDisks(Section):
    """NVMe disks inside the machine."""

    use: Literal["ephemeral", "passthrough"] = "ephemeral"
    """`ephemeral`: the kubelet keeps images, logs and `emptyDir` volumes (a job's /tmp) on them. `passthrough`: raw
    devices for the machine's own use."""


class Machines(Section):
    """What a pool asks the cloud for. Only for clouds that make machines (`cloud.kind: nebius`), but `preemptible`."""

    platform: str | None = Field(default=None, max_length=64)
    """Kind of machine, for example `gpu-h100-sxm`. Required with the kind `nebius`."""
    preset: str | None = Field(default=None, max_length=64)
    """Size of the machine, for example `8gpu-128vcpu-1600gb`. Required with the kind `nebius`. `resources` are
    computed from it."""
    gpu_cluster: GpuCluster | None = None
    """InfiniBand fabric of the machines. A GPU pool of several machines needs one."""
    boot_disk: BootDisk = Field(default_factory=BootDisk)
    """Disk that each machine starts from."""
    preemptible: bool = Field(default=False, strict=True)
    """Machines that the cloud may take back at any time. Where the cloud makes them, it is asked for such cheaper ones.
    In an elastic pool, on every cloud: when the pod of a node is told to go, its batch jobs go back to the queue at
    once, and start elsewhere. Others run on until the machine goes."""
    reservation: Reservation | None = None
    """Reserved capacity. Default: the service's own rule."""
    local_disks: LocalDisks | None = None
    """NVMe disks of platforms that have them. Default: unused."""
    autoscaling: Autoscaling = Field(default_factory=Autoscaling)
    """Node groups of the machines."""
    max_pods: int = Field(default=32, ge=8, le=256, strict=True)
    """Pods on one machine at most. Each machine takes twice as many addresses, rounded up to a power of two, out of the
    subnet."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How machines are replaced when their template changes."""
    allow_replacement: bool = Field(default=False, strict=True)
    """Whether a change that makes the pool's machines anew is allowed. Set it for that one change."""


MAX_GPUS = 64
"""GPUs of one node at most."""

GpuType = Annotated[
    str,
    Matching(
        r"^(?![1-7]g\.)[A-Za-z0-9][A-Za-z0-9_.-]*$",
        "is not a type of GPU: letters, digits, '_', '.' and '-', beginning with a letter or digit; parts are `mig`",
    ),
    Field(max_length=64),
]
"""A name for `--gpus=TYPE:N`, for example `h100`. To Slurm `H100` is another one (24.11.5, tried)."""

MigProfile = Annotated[
    str,
    Matching(
        r"^[1-7]g\.[1-9][0-9]*gb([+-][a-z]+(\.[a-z]+)?)?$",
        "is not a MIG profile such as 1g.10gb or 1g.10gb+me; `nvidia-smi mig -lgip` lists them",
    ),
]
"""What a part of a GPU has: sevenths of its cores, and memory."""


def from_preset(schema: dict[str, Any]) -> None:
    """Where the cloud makes the machines, only what differs from the preset has to be named."""
    schema.pop("required", None)


class GpuKind(Section):
    """GPUs of one type in a node that has several."""

    type: GpuType
    """Their type in Slurm. Of NVIDIA's a part of what the driver calls them, whatever its capitals, blanks and signs:
    `gtx970` of "NVIDIA GeForce GTX 970"."""
    count: int = Field(ge=1, le=MAX_GPUS, strict=True)
    """How many one node has."""


class Gpus(Section):
    """GPUs of one node. A number alone is their `count`, a list their `kinds`."""

    model_config = ConfigDict(json_schema_extra=from_preset)

    count: int = Field(ge=0, le=MAX_GPUS, strict=True)
    """GPUs of one node, divided or not (`Gres=gpu:N`, Kubernetes resource `nvidia.com/gpu` or `amd.com/gpu`). Default
    where the cloud makes the machines: those of the preset; of `kinds`: their sum."""
    vendor: Literal["nvidia", "amd"] = "nvidia"
    """Whose they are. Those of AMD have no health checks."""
    type: GpuType | None = None
    """Their type in Slurm, for `--gpus=h100:1`; nobody compares it with what the driver calls them. Default: what the
    platform's name tells, where the cloud makes the machines, else none."""
    kinds: tuple[GpuKind, ...] = ()
    """GPUs of several types in one node: `[{type: gtx970, count: 1}, {type: gtx1060, count: 1}]`. Kubernetes is asked
    for their sum, so that a pod has to get all GPUs of its machine. AMD's are taken in this order. Takes
    `confinement: required`."""
    mig: dict[MigProfile, Annotated[int, Field(ge=1, le=7 * MAX_GPUS, strict=True)]] = Field(default_factory=dict)
    """Profile -> instances of one node, where NVIDIA's GPUs are divided (MIG): `{1g.10gb: 56}`. All of them have to be,
    before the worker starts, and the device plugin to offer each profile by its name (its strategy `mixed`)."""
    shard: int | None = Field(default=None, ge=1, le=4096, strict=True)
    """Shares of the node's GPUs for jobs that ask for a part of one (`--gres=shard:1`), the same number for each GPU.
    Slurm counts them; nothing keeps the jobs of a GPU apart. Default: no shares."""
    job_files: bool = Field(default=False, strict=True)
    """Whether the files that say which job has which GPU of NVIDIA's lie on the machine. An exporter of
    its figures can read them in /run/slurmstack/gpu-jobs. Not with `security: baseline`; takes `health`, which is on by
    default."""

    def _problem(self) -> str | None:
        wanted = [key for key in ("type", "kinds", "mig", "shard", "job_files") if getattr(self, key)]
        if not self.count and wanted:
            return f"has {' and '.join(wanted)}, and a count of 0; say how many GPUs a node has"
        if self.vendor != "nvidia" and (self.mig or self.job_files):
            return f"has {'mig' if self.mig else 'job_files'}, which only NVIDIA's GPUs have; remove it, or vendor"
        kinds, *others = [key for key in ("kinds", "mig", "type", "shard") if getattr(self, key)] or [""]
        if others and kinds in {"kinds", "mig"}:
            return f"has {kinds} beside {' and '.join(others)}; {kinds} says the types: keep it, or the others"
        if self.kinds and self.count != (total := sum(kind.count for kind in self.kinds)):
            return f"has count: {self.count}, and kinds of {total} together; leave count out"
        if len({kind.type.lower() for kind in self.kinds}) < len(self.kinds):
            return "has a type twice among its kinds, capitals aside, as limits see it; write it once, with their sum"
        uneven = (
            f"has shard: {self.shard}, which {self.count} GPUs cannot share evenly; take a multiple of {self.count}"
        )
        return uneven if self.shard is not None and self.shard % self.count else None


def _counted(given: object) -> object:
    """A number alone is how many there are, a list of which types; types say how many, too."""
    if isinstance(given, list | tuple):
        given = {"kinds": given}
    if isinstance(given, Mapping) and "count" not in given and "kinds" in given:
        kinds = given["kinds"] if isinstance(given["kinds"], list | tuple) else []
        counts = [kind.get("count") for kind in kinds if isinstance(kind, Mapping)]  # wrong ones are told by themselves
        return {**given, "count": sum(count for count in counts if isinstance(count, int) and 0 < count <= MAX_GPUS)}
    if given is None or isinstance(given, Mapping | Gpus):
        return given
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError("is neither a number of GPUs, nor a map, nor a list of types")  # noqa: TRY004 - pydantic's own
    if not 0 <= given <= MAX_GPUS:
        raise ValueError(f"is no number of GPUs of one node: 0 to {MAX_GPUS}")
    return {"count": given}


def _number_or_map(schema: dict[str, Any]) -> None:
    described = schema.pop("$ref", None)
    if described is not None:
        kinds = {"type": "array", "items": {"$ref": described.replace("Gpus", "GpuKind")}}
        schema["anyOf"] = [{"type": "integer", "minimum": 0, "maximum": MAX_GPUS}, kinds, {"$ref": described}]
    schema["default"] = 0


GpusOfNode = Annotated[Gpus, BeforeValidator(_counted), Field(json_schema_extra=_number_or_map)]
"""A number of GPUs, a list of their types, or a map that says more of them."""
