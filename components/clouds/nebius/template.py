"""The template that a node group makes its machines from."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_nebius as nebius

from config.base import gibibytes, parse_bytes
from config.sections.machines import Machines

OPERATING_SYSTEM = "ubuntu24.04"
"""The one that the service has for all platforms, Kubernetes versions and drivers of the table in config/nebius/."""

_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}


def node_template(
    machines: Machines,
    *,
    subnet_id: pulumi.Input[str],
    service_account_id: pulumi.Input[str] | None,
    gpu_cluster: pulumi.Input[str] | None,
    filesystems: Mapping[str, pulumi.Input[str]],
    user_data: str | None,
) -> nebius.Mk8sV1NodeGroupTemplateArgsDict:
    """The template. `filesystems`: ids of those that the machines mount, by tag.

    A change of it replaces the machines one after the other, but for labels and taints, which reach only machines that
    are made later.
    """
    disk, reservation, local_disks = machines.boot_disk, machines.reservation, machines.local_disks
    template: nebius.Mk8sV1NodeGroupTemplateArgsDict = {
        "metadata": {"labels": dict(machines.labels)},
        "resources": {"platform": str(machines.platform), "preset": str(machines.preset)},
        "boot_disk": {
            "type": disk.type,
            "size_gibibytes": gibibytes(disk.size),
            "block_size_bytes": parse_bytes(disk.block_size),
        },
        "os": OPERATING_SYSTEM,
        "max_pods": machines.max_pods,
        "network_interfaces": [{"subnet_id": subnet_id}],
    }
    if machines.taints:
        template["taints"] = [
            {"key": taint.key, "value": taint.value, "effect": _EFFECTS[taint.effect]} for taint in machines.taints
        ]
    if filesystems:
        template["filesystems"] = [
            {"attach_mode": "READ_WRITE", "mount_tag": tag, "existing_filesystem": {"id": id_}}
            for tag, id_ in filesystems.items()
        ]
    if user_data is not None:
        template["cloud_init_user_data"] = user_data
    if service_account_id is not None:
        template["service_account_id"] = service_account_id
    if gpu_cluster is not None:
        template["gpu_cluster"] = {"id": gpu_cluster}
    if machines.drivers_preset:
        template["gpu_settings"] = {"drivers_preset": machines.drivers_preset}
    if machines.preemptible:
        template["preemptible"] = {}  # empty, but there: the service takes the mere presence for "on"
    if reservation is not None:
        policy, ids = reservation.policy, list(reservation.ids)
        template["reservation_policy"] = {"policy": policy, "reservation_ids": ids} if ids else {"policy": policy}
    if local_disks is not None:
        ephemeral = local_disks.use == "ephemeral"
        template["local_disks"] = {
            "passthrough_group": {"requested": True},
            "config": {"kubelet_ephemeral": True} if ephemeral else {"none": True},
        }
    return template
