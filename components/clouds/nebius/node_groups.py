"""Node groups: their machines, what these mount when they first start, and when the service replaces one by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_nebius as nebius
import yaml

from components.clouds.nebius.placement import (
    drivers_preset,
    role_labels,
    role_taints,
    worker_labels,
    worker_taints,
)
from components.clouds.nebius.resources import OF_CONTROLLER, OF_JAIL, CloudScope, mount_path
from config.base import gibibytes, parse_bytes
from config.nebius.cloud import NebiusCloud, Role, SystemNodes
from config.nebius.needs import ROLE_MAX_PODS
from config.sections.machines import Autoscaling, CountOrPercent, Machines, UpdateStrategy
from config.sections.workers import WorkerPool

ROLE_DRAIN_S = 600
"""Seconds that a machine of our own roles may wait for its pods to leave, when it is replaced."""

GRACE_S = 60
"""Seconds beyond a pool's `drain_timeout`, in which slurmd itself ends after the last job."""

OPERATING_SYSTEM = "ubuntu24.04"
"""The one that the service has for all platforms, Kubernetes versions and drivers of the table in config/nebius/."""

_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}

UNREACHABLE = "600s"
"""The kubelet has not answered for so long. Slurm gives a node up after 2 minutes (SlurmdTimeout) and has requeued its
jobs by then."""

BROKEN = "1800s"
"""The kubelet answers, but says that the machine is not ready. Jobs may still run, so people get time to look."""

AT_ONCE = "1s"

ADMINISTRATOR = "admin"
"""User of the machines for whom the administrators' keys are."""


@dataclass(frozen=True, kw_only=True)
class NodeGroupsArgs:
    """What the groups of one cluster have in common."""

    cloud: NebiusCloud
    cluster_id: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    service_account_id: pulumi.Input[str] | None
    filesystems: Mapping[str, pulumi.Input[str]]
    """Ids by tag."""
    gpu_clusters: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Ids by pool."""
    saves_jail: bool = False
    """Whether backups are made, which happens beside slurmctld."""


def create_role_groups(scope: CloudScope, args: NodeGroupsArgs) -> list[nebius.Mk8sV1NodeGroup]:
    """The machines of our own roles, one group each, with the file systems that their pods mount."""
    of_controller = (*OF_CONTROLLER, *(OF_JAIL if args.saves_jail else []))
    mounted = {"system": OF_JAIL, "controller": of_controller, "login": _of_users(args)}
    return [
        _create(scope, args, scope.name(role), _role_machines(role, nodes), _only(args, mounted[role]))
        for role, nodes in args.cloud.roles.items()
    ]


def create_worker_groups(
    scope: CloudScope, args: NodeGroupsArgs, pool_name: str, pool: WorkerPool
) -> list[nebius.Mk8sV1NodeGroup]:
    """The machines of a worker pool.

    A group holds 100 machines at most, so a large pool has several, numbered within the pool: they keep their names
    whatever other pools come or go. Each follows the worker pods by itself, so that a change of the size only adds or
    removes groups at the end, and mostly none.
    """
    machines = _worker_machines(args.cloud, pool_name, pool)
    gpu_cluster = args.gpu_clusters.get(pool_name)
    return [
        _create(
            scope,
            args,
            scope.name(f"{pool_name}-{number}"),
            machines,
            _of_users(args),
            gpu_cluster=gpu_cluster,
            auto_repair=worker_repair(),
        )
        for number in range(pool.node_groups)
    ]


def _of_users(args: NodeGroupsArgs) -> list[str]:
    return [tag for tag in args.filesystems if tag not in OF_CONTROLLER]


def _only(args: NodeGroupsArgs, tags: Sequence[str]) -> list[str]:
    return [tag for tag in tags if tag in args.filesystems]


def _role_machines(role: Role, nodes: SystemNodes) -> Machines:
    """As a pool would ask for them."""
    return Machines(
        platform=nodes.platform,
        preset=nodes.preset,
        boot_disk=nodes.boot_disk,
        max_pods=ROLE_MAX_PODS,
        labels=role_labels(role),
        taints=role_taints(role),
        autoscaling=Autoscaling(min_size=nodes.min_size, max_size=nodes.max_size),
        update_strategy=UpdateStrategy(drain_timeout=ROLE_DRAIN_S),
    )


def _worker_machines(cloud: NebiusCloud, pool_name: str, pool: WorkerPool) -> Machines:
    """The pool with what follows from it, and from the cloud."""
    drain = pool.update_strategy.drain_timeout or pool.drain_timeout + GRACE_S
    more = {
        "labels": worker_labels(pool_name, pool),
        "taints": worker_taints(pool),
        "drivers_preset": drivers_preset(cloud, pool),
        "autoscaling": pool.autoscaling.model_copy(update={"min_size": pool.kept_in_group}),
        # The service's own defaults change.
        "update_strategy": pool.update_strategy.model_copy(update={"drain_timeout": drain}),
    }
    return pool.model_copy(update=more)


def _create(
    scope: CloudScope,
    args: NodeGroupsArgs,
    name: str,
    machines: Machines,
    tags: Sequence[str],
    *,
    gpu_cluster: pulumi.Input[str] | None = None,
    auto_repair: nebius.Mk8sV1NodeGroupAutoRepairArgs | None = None,
) -> nebius.Mk8sV1NodeGroup:
    """`tags`: file systems that the machines mount. `auto_repair`: None for the service's own rules."""
    kubernetes = args.cloud.kubernetes
    strategy, bounds = machines.update_strategy, machines.autoscaling
    return nebius.Mk8sV1NodeGroup(
        name,
        name=name,
        parent_id=args.cluster_id,
        version=kubernetes.node_version or kubernetes.version,
        autoscaling={"min_node_count": bounds.min_size, "max_node_count": bounds.max_size},
        strategy=nebius.Mk8sV1NodeGroupStrategyArgs(
            max_unavailable=nebius.Mk8sV1NodeGroupStrategyMaxUnavailableArgs(**_amount(strategy.max_unavailable)),
            max_surge=nebius.Mk8sV1NodeGroupStrategyMaxSurgeArgs(**_amount(strategy.max_surge)),
            drain_timeout=f"{strategy.drain_timeout}s",
        ),
        auto_repair=auto_repair,
        template=node_template(
            machines,
            subnet_id=args.subnet_id,
            service_account_id=args.service_account_id,
            gpu_cluster=gpu_cluster,
            filesystems={tag: args.filesystems[tag] for tag in tags},
            user_data=cloud_init(tags, args.cloud.ssh_keys),
        ),
        labels=scope.labels,
        opts=scope.options,
    )


def _amount(amount: CountOrPercent) -> dict[str, int]:
    """A number or a percentage, as the service has it."""
    return {"count": amount} if isinstance(amount, int) else {"percent": int(amount.removesuffix("%"))}


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


def worker_repair() -> nebius.Mk8sV1NodeGroupAutoRepairArgs:
    """Conditions of a Kubernetes node, each with how long it must last.

    An error of one GPU is no reason: jobs run on the others, and the node must be drained first. Whoever has drained it
    sets HardwareIssuesSuspected, upon which the machine is replaced at once. The names are those of the vendor's
    recipe for Slurm (nebius/nebius-solutions-library, 2026).
    """
    return nebius.Mk8sV1NodeGroupAutoRepairArgs(
        conditions=[
            _after("NodeReady", "UNKNOWN", UNREACHABLE),
            _after("NodeReady", "FALSE", BROKEN),
            _after("NebiusBootDiskIOError", "TRUE", UNREACHABLE),
            _after("NebiusContainerRuntimeError", "TRUE", BROKEN),
            nebius.Mk8sV1NodeGroupAutoRepairConditionArgs(type="NebiusGPUError", status="TRUE", disabled=True),
            _after("HardwareIssuesSuspected", "TRUE", AT_ONCE),
        ]
    )


def _after(type_: str, status: str, timeout: str) -> nebius.Mk8sV1NodeGroupAutoRepairConditionArgs:
    return nebius.Mk8sV1NodeGroupAutoRepairConditionArgs(type=type_, status=status, timeout=timeout)


def cloud_init(tags: Sequence[str], ssh_keys: Sequence[str]) -> str | None:
    """The user data of a machine; None if it has nothing to do."""
    document: dict[str, Any] = {}
    if ssh_keys:
        document["users"] = [
            {
                "name": ADMINISTRATOR,
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "shell": "/bin/bash",
                "ssh_authorized_keys": list(ssh_keys),
            }
        ]
    if tags:
        units = [mount_unit(tag) for tag in tags]
        document["write_files"] = [
            {"path": f"/etc/systemd/system/{unit}", "content": _unit_file(tag)}
            for unit, tag in zip(units, tags, strict=True)
        ]
        # One command for all: a file system that cannot be mounted keeps neither the others nor the machine from
        # starting, and pods that need it say so.
        document["runcmd"] = [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", *units]]
    if not document:
        return None
    return "#cloud-config\n" + yaml.dump(document, Dumper=_Blocks, sort_keys=True, width=1000)


class _Blocks(yaml.SafeDumper):
    """Writes texts of several lines as such, so that people can read them in a preview."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """A text, as a block if it has several lines."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


_Blocks.add_representer(str, _Blocks.represent_str)


def mount_unit(tag: str) -> str:
    """Name of the unit that mounts a file system; systemd derives it from the path, in which `-` stands for `/`."""
    escaped = mount_path(tag).strip("/").replace("-", "\\x2d").replace("/", "-")
    return f"{escaped}.mount"


def _unit_file(tag: str) -> str:
    """Mounted at each start, before the kubelet starts pods that use it.

    cloud-init's own `mounts` passes over what is no device file, and a virtiofs tag is none.
    """
    return (
        "[Unit]\n"
        f"Description=Shared file system {tag}\n"
        "Before=kubelet.service\n"
        "\n"
        "[Mount]\n"
        f"What={tag}\n"
        f"Where={mount_path(tag)}\n"
        "Type=virtiofs\n"
        "\n"
        "[Install]\n"
        "WantedBy=multi-user.target\n"
    )
