"""The template that a node group makes its machines from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_nebius as nebius

from config.base import parse_bytes
from config.machines import BootDisk, LocalDisks, Reservation, Taint, UpdateStrategy
from slurm.needs import gibibytes

OPERATING_SYSTEM = "ubuntu24.04"
"""The one that the service has for all platforms, Kubernetes versions and drivers of the table in config/data/."""

_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}


@dataclass(frozen=True, kw_only=True)
class Machines:
    """What the machines of a group are."""

    platform: str
    preset: str
    boot_disk: BootDisk
    max_pods: int
    labels: Mapping[str, str]
    taints: Sequence[Taint]
    tags: Sequence[str]
    """File systems that they mount."""
    gpu_cluster: pulumi.Input[str] | None = None
    drivers_preset: str | None = None
    preemptible: bool = False
    reservation: Reservation | None = None
    local_disks: LocalDisks | None = None


@dataclass(frozen=True, kw_only=True)
class GroupArgs:
    """One node group."""

    name: str
    machines: Machines
    min_size: int
    max_size: int
    strategy: UpdateStrategy
    """With a `drain_timeout`: the service's own defaults change."""
    auto_repair: nebius.Mk8sV1NodeGroupAutoRepairArgs | None = None
    """None: the service's own rules."""


def node_template(
    machines: Machines,
    *,
    subnet_id: pulumi.Input[str],
    service_account_id: pulumi.Input[str] | None,
    filesystems: Mapping[str, pulumi.Input[str]],
    user_data: str | None,
) -> nebius.Mk8sV1NodeGroupTemplateArgs:
    """The template.

    A change of it replaces the machines one after the other, but for labels and taints, which reach only machines that
    are made later.
    """
    reservation = machines.reservation
    return nebius.Mk8sV1NodeGroupTemplateArgs(
        metadata=nebius.Mk8sV1NodeGroupTemplateMetadataArgs(labels=dict(machines.labels)),
        taints=[_taint(taint) for taint in machines.taints] or None,
        resources=nebius.Mk8sV1NodeGroupTemplateResourcesArgs(platform=machines.platform, preset=machines.preset),
        boot_disk=_boot_disk(machines.boot_disk),
        os=OPERATING_SYSTEM,
        max_pods=machines.max_pods,
        network_interfaces=[nebius.Mk8sV1NodeGroupTemplateNetworkInterfaceArgs(subnet_id=subnet_id)],
        filesystems=[_filesystem(tag, filesystems[tag]) for tag in machines.tags] or None,
        cloud_init_user_data=user_data,
        service_account_id=service_account_id,
        gpu_cluster=(
            nebius.Mk8sV1NodeGroupTemplateGpuClusterArgs(id=machines.gpu_cluster)
            if machines.gpu_cluster is not None
            else None
        ),
        gpu_settings=(
            nebius.Mk8sV1NodeGroupTemplateGpuSettingsArgs(drivers_preset=machines.drivers_preset)
            if machines.drivers_preset
            else None
        ),
        preemptible=_preemptible() if machines.preemptible else None,
        reservation_policy=(
            nebius.Mk8sV1NodeGroupTemplateReservationPolicyArgs(
                policy=reservation.policy, reservation_ids=list(reservation.ids) or None
            )
            if reservation is not None
            else None
        ),
        local_disks=_local_disks(machines.local_disks) if machines.local_disks is not None else None,
    )


def _preemptible() -> nebius.Mk8sV1NodeGroupTemplatePreemptibleArgs:
    """Empty, but there: the service takes the mere presence for "on"."""
    return nebius.Mk8sV1NodeGroupTemplatePreemptibleArgs()  # type: ignore[no-untyped-call]  # generated without types


def _taint(taint: Taint) -> nebius.Mk8sV1NodeGroupTemplateTaintArgs:
    return nebius.Mk8sV1NodeGroupTemplateTaintArgs(key=taint.key, value=taint.value, effect=_EFFECTS[taint.effect])


def _boot_disk(disk: BootDisk) -> nebius.Mk8sV1NodeGroupTemplateBootDiskArgs:
    return nebius.Mk8sV1NodeGroupTemplateBootDiskArgs(
        type=disk.type, size_gibibytes=gibibytes(disk.size), block_size_bytes=parse_bytes(disk.block_size)
    )


def _filesystem(tag: str, filesystem_id: pulumi.Input[str]) -> nebius.Mk8sV1NodeGroupTemplateFilesystemArgs:
    return nebius.Mk8sV1NodeGroupTemplateFilesystemArgs(
        attach_mode="READ_WRITE",
        mount_tag=tag,
        existing_filesystem=nebius.Mk8sV1NodeGroupTemplateFilesystemExistingFilesystemArgs(id=filesystem_id),
    )


def _local_disks(disks: LocalDisks) -> nebius.Mk8sV1NodeGroupTemplateLocalDisksArgs:
    config = (
        nebius.Mk8sV1NodeGroupTemplateLocalDisksConfigArgs(kubelet_ephemeral=True)
        if disks.use == "ephemeral"
        else nebius.Mk8sV1NodeGroupTemplateLocalDisksConfigArgs(none=True)
    )
    return nebius.Mk8sV1NodeGroupTemplateLocalDisksArgs(
        passthrough_group=nebius.Mk8sV1NodeGroupTemplateLocalDisksPassthroughGroupArgs(requested=True), config=config
    )
