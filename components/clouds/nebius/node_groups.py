"""Node groups: their machines, what these mount at first, when one is replaced, and which pods go there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_nebius as nebius
import yaml

from components.clouds.base import Placement
from components.clouds.nebius.resources import OF_CONTROLLER, OF_JAIL, CloudScope, mount_path
from config.base import gibibytes
from config.sections.cloud import NebiusCloud, Role
from config.sections.machines import MAX_GROUP_SIZE, CountOrPercent, Machines
from config.sections.workers import Toleration, WorkerPool

ROLE_MAX_PODS = 110
"""Pods on one machine of our own roles at most: the service's default, with which it sizes a node's range."""

ROLE_DRAIN_S = 600
"""Seconds that a machine of our own roles may wait for its pods to leave, when it is replaced."""

GRACE_S = 60
"""Seconds beyond a pool's `drain_timeout`, in which slurmd itself ends after the last job."""

OPERATING_SYSTEM = "ubuntu24.04"
"""The one that the service has for all platforms of the table in config/nebius/, and all Kubernetes versions."""

DRIVERS = "cuda13.0"
"""Preinstalled GPU drivers, which go with each version of Kubernetes that the service has (November 2026)."""

BLOCK_BYTES = 4096
"""Of boot disks."""

UNREACHABLE = "600s"
"""The kubelet has not answered for so long. Slurm gives a node up after 2 minutes (SlurmdTimeout) and has requeued its
jobs by then."""

BROKEN = "1800s"
"""The kubelet answers, but says that the machine is not ready. Jobs may still run, so people get time to look."""

AT_ONCE = "1s"

ADMINISTRATOR = "admin"
"""User of the machines for whom the administrators' keys are."""

ROLE_LABEL = "slurmstack/role"
POOL_LABEL = "slurmstack/pool"
RDMA_LABEL = "slurmstack/rdma"
"""`true` on machines of a GPU cluster, whose InfiniBand devices pods can ask for."""

Taint = tuple[str, str]
"""Key and value; its effect is NoSchedule."""

GPU_TAINT = "nvidia.com/gpu"
"""What NVIDIA's and the vendor's own daemons on GPU machines tolerate."""


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
        _create(
            scope,
            args,
            scope.name(role),
            Machines(platform=nodes.platform, preset=nodes.preset, boot_disk=nodes.boot_disk, max_pods=ROLE_MAX_PODS),
            [tag for tag in mounted[role] if tag in args.filesystems],
            bounds=(nodes.min_size, nodes.max_size),
            drain_seconds=ROLE_DRAIN_S,
            labels=role_labels(role),
            taint=role_taint(role),
        )
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
    return [
        _create(
            scope,
            args,
            scope.name(f"{pool_name}-{number}"),
            pool,
            _of_users(args),
            bounds=(pool.kept_in_group, MAX_GROUP_SIZE),
            drain_seconds=pool.drain_timeout + GRACE_S,
            labels=worker_labels(pool_name, pool),
            taint=worker_taint(pool),
            gpu_cluster=args.gpu_clusters.get(pool_name),
            drivers=DRIVERS if pool.resources.gpus.count else None,
            auto_repair=worker_repair(),
        )
        for number in range(pool.node_groups)
    ]


def _of_users(args: NodeGroupsArgs) -> list[str]:
    return [tag for tag in args.filesystems if tag not in OF_CONTROLLER]


def _create(
    scope: CloudScope,
    args: NodeGroupsArgs,
    name: str,
    machines: Machines,
    tags: Sequence[str],
    *,
    bounds: tuple[int, int],
    drain_seconds: int,
    labels: Mapping[str, str],
    taint: Taint | None,
    gpu_cluster: pulumi.Input[str] | None = None,
    drivers: str | None = None,
    auto_repair: nebius.Mk8sV1NodeGroupAutoRepairArgs | None = None,
) -> nebius.Mk8sV1NodeGroup:
    """`tags`: file systems that the machines mount. `bounds`: machines at least and at most.

    What the service would choose itself is said, too: its defaults change with time. `auto_repair`: None for its own
    rules. A change of the template replaces the machines one after the other, but for labels and taints, which reach
    only machines that are made later.
    """
    template = _template(machines, args, tags)
    template["metadata"] = {"labels": dict(labels)}
    if taint is not None:
        template["taints"] = [{"key": taint[0], "value": taint[1], "effect": "NO_SCHEDULE"}]
    if gpu_cluster is not None:
        template["gpu_cluster"] = {"id": gpu_cluster}
    if drivers is not None:
        template["gpu_settings"] = {"drivers_preset": drivers}
    return nebius.Mk8sV1NodeGroup(
        name,
        name=name,
        parent_id=args.cluster_id,
        version=args.cloud.kubernetes.version,
        autoscaling={"min_node_count": bounds[0], "max_node_count": bounds[1]},
        strategy=nebius.Mk8sV1NodeGroupStrategyArgs(
            max_unavailable=_amount(machines.update_strategy.max_unavailable),
            # More than none needs quota for them, or the update hangs.
            max_surge=nebius.Mk8sV1NodeGroupStrategyMaxSurgeArgs(count=0),
            drain_timeout=f"{drain_seconds}s",
        ),
        auto_repair=auto_repair,
        template=template,
        labels=scope.labels,
        opts=scope.options,
    )


def _amount(amount: CountOrPercent) -> nebius.Mk8sV1NodeGroupStrategyMaxUnavailableArgs:
    """A number or a percentage, as the service has it."""
    if isinstance(amount, int):
        return nebius.Mk8sV1NodeGroupStrategyMaxUnavailableArgs(count=amount)
    return nebius.Mk8sV1NodeGroupStrategyMaxUnavailableArgs(percent=int(amount.removesuffix("%")))


def _template(machines: Machines, args: NodeGroupsArgs, tags: Sequence[str]) -> nebius.Mk8sV1NodeGroupTemplateArgsDict:
    disk, reservation, local_disks = machines.boot_disk, machines.reservation, machines.local_disks
    template: nebius.Mk8sV1NodeGroupTemplateArgsDict = {
        "resources": {"platform": str(machines.platform), "preset": str(machines.preset)},
        "boot_disk": {
            "type": disk.type,
            "size_gibibytes": gibibytes(disk.size),
            "block_size_bytes": BLOCK_BYTES,
        },
        "os": OPERATING_SYSTEM,
        "max_pods": machines.max_pods,
        "network_interfaces": [{"subnet_id": args.subnet_id}],
    }
    if tags:
        template["filesystems"] = [
            {"attach_mode": "READ_WRITE", "mount_tag": tag, "existing_filesystem": {"id": args.filesystems[tag]}}
            for tag in tags
        ]
    if (user_data := cloud_init(tags, args.cloud.ssh_keys)) is not None:
        template["cloud_init_user_data"] = user_data
    if args.service_account_id is not None:
        template["service_account_id"] = args.service_account_id
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


# Which pods go to which machines: labels and taints of the machines, selectors and tolerations of the pods.


def role_labels(role: Role) -> dict[str, str]:
    """Labels of the machines of one of our own roles."""
    return {ROLE_LABEL: role}


def role_taint(role: Role) -> Taint | None:
    """Keeps other pods off the machines of one of our own roles. The cluster's own pods need some without."""
    return None if role == "system" else (ROLE_LABEL, role)


def worker_labels(pool_name: str, pool: WorkerPool) -> dict[str, str]:
    """Labels of a pool's machines."""
    rdma = {RDMA_LABEL: "true"} if pool.gpu_cluster is not None else {}
    return {ROLE_LABEL: "worker", POOL_LABEL: pool_name, **rdma}


def worker_taint(pool: WorkerPool) -> Taint:
    """Keeps all but workers off a pool's machines."""
    gpus = pool.resources.gpus.count
    return (GPU_TAINT, str(gpus)) if gpus else (ROLE_LABEL, "worker")


def role_placement(role: Role) -> Placement:
    """Where the pods of one of our own roles go."""
    taint = role_taint(role)
    return Placement(node_selector=role_labels(role), tolerations=(_tolerates(taint),) if taint else ())


def worker_placement(
    pool_name: str, pool: WorkerPool, devices: Mapping[str, str], *, machines: Sequence[pulumi.Resource]
) -> Placement:
    """Where the workers of a pool go. `devices`: what they ask for besides GPUs, if the machines have it."""
    return Placement(
        node_selector={ROLE_LABEL: "worker", POOL_LABEL: pool_name},
        tolerations=(_tolerates(worker_taint(pool)),),
        devices=devices if pool.gpu_cluster is not None else {},
        machines=tuple(machines),
    )


def _tolerates(taint: Taint) -> Toleration:
    """A toleration of just this taint; of the GPU taint whatever its value, which is only a count."""
    key, value = taint
    return Toleration(key=key, value=None if key == GPU_TAINT else value, effect="NoSchedule")
