"""The machines of a pool: their GPUs, and what is asked of a cloud that makes machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from config.base import PART_SCHEMA, Matching, Quantity, Section, amount_or_part, parse_bytes
from config.names import LABEL_VALUE, LabelKey, LabelValue

DiskType = Literal["NETWORK_SSD", "NETWORK_HDD", "NETWORK_SSD_NON_REPLICATED", "NETWORK_SSD_IO_M3"]

MAX_GROUP_SIZE = 100
"""Nodes of one node group at most (Nebius API, `fixed_node_count` and `max_node_count`: 0..100)."""


def _boot_disk_size(quantity: str) -> str:
    if parse_bytes(quantity) < parse_bytes("64Gi"):
        raise ValueError("is too small for a boot disk; 64Gi at least")
    return quantity


def _block_size(quantity: str) -> str:
    size = parse_bytes(quantity)
    if not 4096 <= size <= 131072 or size & (size - 1):
        raise ValueError("is not a block size: a power of two from 4Ki to 128Ki")
    return quantity


BlockSize = Annotated[Quantity, AfterValidator(_block_size)]


class BootDisk(Section):
    """The disk that a machine starts from; container images and `emptyDir` volumes are on it too."""

    type: DiskType = "NETWORK_SSD"
    """Kind of disk. NETWORK_SSD_NON_REPLICATED and NETWORK_SSD_IO_M3 come in steps of 93Gi."""
    size: Annotated[Quantity, AfterValidator(_boot_disk_size)] = "128Gi"
    """Capacity; at least 64Gi."""
    block_size: BlockSize = "4Ki"
    """Block size: a power of two from 4Ki to 128Ki. It can never change."""

    def _problem(self) -> str | None:
        stepped = self.type in {"NETWORK_SSD_NON_REPLICATED", "NETWORK_SSD_IO_M3"}
        if stepped and parse_bytes(self.size) % parse_bytes("93Gi"):
            return f"size {self.size} is no multiple of 93Gi, which {self.type} comes in"
        return None


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

    def _problem(self) -> str | None:
        forbidden = self.policy == "FORBID" and self.ids
        return "names reservations but policy FORBID never uses one" if forbidden else None


class Autoscaling(Section):
    """Bounds of a node group that follows the worker pods. A machine with a worker on it is never taken away."""

    min_size: int = Field(default=0, ge=0, le=MAX_GROUP_SIZE, strict=True)
    """Machines that each node group keeps even without pods."""
    max_size: int = Field(default=MAX_GROUP_SIZE, ge=1, le=MAX_GROUP_SIZE, strict=True)
    """Machines of each node group at most."""
    groups: int = Field(default=1, ge=1, le=50, strict=True)
    """Node groups at least; a pool has one for each hundred of `size` anyway. A group that goes takes its machines away
    whatever runs on them: keep the number when `size` falls below a hundred, and lower it when no worker is there."""

    def _problem(self) -> str | None:
        above = self.min_size > self.max_size
        return f"min_size {self.min_size} is more than max_size {self.max_size}" if above else None


CountOrPercent = Annotated[int | str, amount_or_part("machines", most=MAX_GROUP_SIZE), PART_SCHEMA]


class UpdateStrategy(Section):
    """How a node group replaces its machines when their template changes.

    Always stated: the service's own defaults change with time.
    """

    max_unavailable: CountOrPercent = 1
    """Machines that may be away at once: a number or a percentage (rounded down)."""
    max_surge: CountOrPercent = 0
    """Machines that may exist beyond the size meanwhile: a number or a percentage (rounded up). More than zero needs
    quota for them, or the update hangs."""
    drain_timeout: int | None = Field(default=None, ge=60, le=365 * 24 * 3600, strict=True)
    """Seconds that a machine may wait for its pods to leave. Default: the pool's `drain_timeout`. So an update
    kills no job."""

    def _problem(self) -> str | None:
        if self.max_unavailable in (0, "0%") and self.max_surge in (0, "0%"):
            return "max_unavailable and max_surge are both zero, so no machine could ever be replaced"
        return None


class LocalDisks(Section):
    """NVMe disks inside the machine."""

    use: Literal["ephemeral", "passthrough"] = "ephemeral"
    """`ephemeral`: the kubelet keeps images, logs and `emptyDir` volumes (a job's /tmp) on them. `passthrough`: raw
    devices for the machine's own use."""


class Taint(Section):
    """Keeps pods off the machines that do not tolerate it."""

    key: LabelKey
    """Key of the taint."""
    value: str = Field(min_length=1, max_length=63, pattern=LABEL_VALUE)
    """Value of the taint. The service refuses an empty one."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """Effect of the taint."""


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
    """Bounds of the node groups, which follow the worker pods."""
    max_pods: int = Field(default=32, ge=8, le=256, strict=True)
    """Pods on one machine at most. Each machine takes twice as many addresses, rounded up to a power of two, out of the
    subnet."""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=64)
    """Labels of the Kubernetes nodes. A change does not reach machines that exist."""
    taints: tuple[Taint, ...] = Field(default=(), max_length=64)
    """Further taints of the Kubernetes nodes; the pool's workers tolerate them. A change does not reach machines that
    exist."""
    drivers_preset: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9.]*$")
    """Preinstalled GPU drivers, for example `cuda13.0`. Default: by platform and Kubernetes version."""
    update_strategy: UpdateStrategy = Field(default_factory=UpdateStrategy)
    """How machines are replaced when their template changes."""
    allow_replacement: bool = Field(default=False, strict=True)
    """Whether a change that makes the pool's machines anew is allowed. Set it for that one change."""


MAX_GPUS = 64
"""GPUs of one node at most."""

SLICES = 7
"""Parts of its cores that a GPU can be divided into (NVIDIA's MIG); the first figure of a profile counts them."""

GpuType = Annotated[
    str,
    Matching(
        r"[a-z][a-z0-9_.-]*",
        "is not a type of GPU: small letters, digits, '_', '.' and '-', beginning with a letter",
        in_schema=False,
    ),
    Field(max_length=64),
]
"""A name for `--gpus=TYPE:N`, for example `h100`."""

MigProfile = Annotated[
    str,
    Matching(
        r"([1-7])g\.[1-9][0-9]*gb([+-][a-z]+(\.[a-z]+)?)?",
        "is not a MIG profile such as 1g.10gb or 1g.10gb+me; `nvidia-smi mig -lgip` lists them",
        in_schema=False,
    ),
]
"""What a part of a GPU has: sevenths of its cores, and memory."""


def has_room(instances: Mapping[int, int], count: int) -> bool:
    """Whether `count` GPUs can be divided so: sevenths of the cores -> instances.

    As of the GPUs that are divided into sevenths (A100 to B200): a GPU has 8 parts of memory, too, and an instance of
    3g or 4g takes 4 of them. So a GPU has 4g once, beside 3g or smaller ones; 3g twice, and nothing else then; 2g three
    times. Smaller GPUs (A30) have room for less.
    """
    halves = instances.get(4, 0)
    empty = count - halves - sum(number for size, number in instances.items() if size > 4)
    beside = min(halves, instances.get(3, 0))
    left = instances.get(3, 0) - beside
    if empty < 0 or left > 2 * empty:
        return False
    # One for each before any has two, which are full.
    pairs = max(0, left - empty)
    single = left - 2 * pairs
    empty -= pairs + single
    halves -= beside
    twos = instances.get(2, 0)
    return twos <= halves + 2 * single + 3 * empty and (
        instances.get(1, 0) <= 3 * halves + 4 * single + SLICES * empty - 2 * twos
    )


def dotted(profile: str) -> str:
    """A profile's name as the device plugin writes it: a plus is allowed neither there nor in `--gpus`."""
    return profile.replace("+", ".")


def _count_from_preset(schema: dict[str, Any]) -> None:
    """Where the cloud makes the machines, `gpus` may leave out how many there are."""
    schema.pop("required", None)


class Gpus(Section):
    """GPUs of one node. A number alone is their `count`."""

    model_config = ConfigDict(json_schema_extra=_count_from_preset)

    count: int = Field(ge=0, le=MAX_GPUS, strict=True)
    """GPUs of one node, divided or not (`Gres=gpu:N`, Kubernetes resource `nvidia.com/gpu` or `amd.com/gpu`). Default
    where the cloud makes the machines: those of the preset."""
    vendor: Literal["nvidia", "amd"] = "nvidia"
    """Whose they are. Those of AMD have no health checks."""
    type: GpuType | None = None
    """Their type in Slurm, for `--gpus=h100:1`; of NVIDIA's a part of the name that the driver gives. Default: what the
    platform's name tells, where the cloud makes the machines, else none."""
    mig: dict[MigProfile, Annotated[int, Field(ge=1, le=SLICES * MAX_GPUS, strict=True)]] = Field(default_factory=dict)
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
        wanted = [key for key in ("type", "mig", "shard", "job_files") if getattr(self, key)]
        if not self.count and wanted:
            return f"has {' and '.join(wanted)}, and a count of 0; say how many GPUs a node has"
        if self.job_files and self.vendor != "nvidia":
            return (
                f"has job_files, which are for exporters of NVIDIA's figures, and vendor: {self.vendor}; remove one of "
                "them"
            )
        if self.mig:
            return self._problem_of_mig()
        if self.shard is not None and self.shard % self.count:
            return (
                f"has shard: {self.shard}, which {self.count} GPUs cannot share evenly; take a multiple of {self.count}"
            )
        return None

    def _problem_of_mig(self) -> str | None:
        if self.vendor != "nvidia":
            return f"has mig, which only NVIDIA's GPUs know, and vendor: {self.vendor}; remove one of them"
        if self.shard is not None:
            return "has mig and shard; both divide the same GPUs. Keep mig for parts that are held apart, or shard"
        if self.type is not None:
            return "has mig and type; the profiles are the types (--gpus=1g.10gb:1). Remove type"
        asked = sum(int(profile[0]) * instances for profile, instances in self.mig.items())
        if asked > SLICES * self.count:
            return (
                f"has mig with {asked} sevenths of a GPU's cores, and {self.count} GPUs have {SLICES * self.count}; "
                "take fewer instances, or raise count"
            )
        sizes = {size: sum(n for profile, n in self.mig.items() if int(profile[0]) == size) for size in range(1, 8)}
        if not has_room(sizes, self.count):
            return (
                f"has mig that {self.count} GPUs have no room for: of one GPU there is at most one instance of 4g or "
                "more, two of 3g (and nothing else then) or three of 2g (`nvidia-smi mig -lgipp`); take fewer "
                "instances, or raise count"
            )
        return None


def _counted(given: object) -> object:
    """A number alone is how many there are."""
    if given is None or isinstance(given, Mapping | Gpus):
        return given
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError("is neither a number of GPUs nor a map with their count")  # noqa: TRY004 - pydantic's own type
    if not 0 <= given <= MAX_GPUS:
        raise ValueError(f"is no number of GPUs of one node: 0 to {MAX_GPUS}")
    return {"count": given}


def _number_or_map(schema: dict[str, Any]) -> None:
    described = schema.pop("$ref", None)
    if described is not None:
        schema["anyOf"] = [{"type": "integer", "minimum": 0, "maximum": MAX_GPUS}, {"$ref": described}]
    schema["default"] = 0


GpusOfNode = Annotated[Gpus, BeforeValidator(_counted), Field(json_schema_extra=_number_or_map)]
"""A number of GPUs, or a map that says more of them."""
