"""The machines below Slurm, for clouds that make them: what a pool asks the cloud for."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from config.base import Quantity, Section, parse_bytes
from config.limits import PART_SCHEMA, amount_or_part
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

    @model_validator(mode="after")
    def _in_steps(self) -> BootDisk:
        stepped = self.type in {"NETWORK_SSD_NON_REPLICATED", "NETWORK_SSD_IO_M3"}
        if stepped and parse_bytes(self.size) % parse_bytes("93Gi"):
            raise ValueError(f"size {self.size} is no multiple of 93Gi, which {self.type} comes in")
        return self


class GpuCluster(Section):
    """The InfiniBand fabric that connects the machines of a pool."""

    infiniband_fabric: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)
    """Fabric as the cloud names it, for example `fabric-6`. Pools that name the same one share one GPU cluster."""

    id: str | None = Field(default=None, pattern=r"^computegpucluster-[a-z0-9-]+$")
    """An existing GPU cluster instead of a new one."""

    @model_validator(mode="after")
    def _exactly_one(self) -> GpuCluster:
        if (self.infiniband_fabric is None) == (self.id is None):
            raise ValueError("needs exactly one of infiniband_fabric (a new GPU cluster) and id (an existing one)")
        return self


class Reservation(Section):
    """Whether machines come out of reserved capacity."""

    policy: Literal["AUTO", "STRICT", "FORBID"] = "AUTO"
    """AUTO: reserved capacity first, then other; STRICT: reserved only; FORBID: never reserved."""

    ids: tuple[Annotated[str, Field(pattern=r"^[a-z0-9]+-[a-z0-9-]+$")], ...] = ()
    """Capacity block groups to take from, in this order. None: any that fits."""

    @model_validator(mode="after")
    def _not_forbidden(self) -> Reservation:
        if self.policy == "FORBID" and self.ids:
            raise ValueError("names reservations but policy FORBID never uses one")
        return self


class Autoscaling(Section):
    """Bounds of a node group that follows the worker pods. A machine with a worker on it is never taken away."""

    min_size: int = Field(default=0, ge=0, le=MAX_GROUP_SIZE, strict=True)
    """Machines that each node group keeps even without pods."""

    max_size: int = Field(default=MAX_GROUP_SIZE, ge=1, le=MAX_GROUP_SIZE, strict=True)
    """Machines of each node group at most."""

    groups: int = Field(default=1, ge=1, le=50, strict=True)
    """Node groups at least; a pool has one for each hundred of `size` anyway. A group that goes takes its machines away
    whatever runs on them: keep the number when `size` falls below a hundred, and lower it when no worker is there."""

    @model_validator(mode="after")
    def _in_order(self) -> Autoscaling:
        if self.min_size > self.max_size:
            raise ValueError(f"min_size {self.min_size} is more than max_size {self.max_size}")
        return self


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

    @model_validator(mode="after")
    def _can_progress(self) -> UpdateStrategy:
        if self.max_unavailable in (0, "0%") and self.max_surge in (0, "0%"):
            raise ValueError("max_unavailable and max_surge are both zero, so no machine could ever be replaced")
        return self


class LocalDisks(Section):
    """NVMe disks inside the machine."""

    use: Literal["ephemeral", "passthrough"] = "ephemeral"
    """`ephemeral`: the kubelet keeps images, logs and `emptyDir` volumes (a job's /tmp) on them. `passthrough`: raw
    devices for the machine's own use."""


class Taint(Section):
    """Keeps pods off the machines that do not tolerate it."""

    key: LabelKey
    """Key of the taint."""
    value: str = Field(min_length=1, max_length=63, pattern=LABEL_VALUE.pattern)
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
