"""What must hold in a stack file for the Nebius cloud: everything that can be known without asking the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any

from config.accounting import Accounting
from config.base import parse_bytes
from config.errors import Problem, unknown_name
from config.nebius import NebiusCloud, SystemNodes
from config.nebius_pools import boot_disk_problems, cpus, machine, pool_problems, whole_gibibytes
from config.nebius_quotas import pool_machines, quota_problems, role_machines
from config.platforms import Catalogue, Preset, allocatable_memory_gib, nebius_catalogue
from config.services import Cluster, Controller, Jail, Login
from config.storage import Filesystem
from config.workers import WorkerPool

GIBIBYTE = 2**30

SYSTEM_VCPUS = 4
"""Virtual CPUs of a system machine at least, for Kubernetes' own pods there (CoreDNS, Cilium, metrics) and our jobs.
The vendor's recipe asks for 8, for a dozen operators that we do not have. Not measured on the real cloud."""

OWN_START_UP_DATA = 4096
"""Bytes of a machine's cloud-init data that we keep for ourselves: the mounts of the shared file systems."""


def nebius_problems(cloud: NebiusCloud, valid: Mapping[str, Any]) -> Iterator[Problem]:
    """Everything that is wrong for this cloud. `valid` has the sections that could be read."""
    catalogue = nebius_catalogue()
    pools: Mapping[str, WorkerPool] = valid.get("worker_nodes") or {}
    login: Login = valid.get("login") or Login()
    if cloud.region not in catalogue.regions:
        message = unknown_name(cloud.region, catalogue.regions, what="a region")
        yield Problem(where="cloud.region", message=message)
    yield from _kubernetes(cloud)
    prefix = cloud.prefix((valid.get("cluster") or Cluster()).namespace)
    yield from _settings(cloud, prefix, catalogue)
    yield from _names(cloud, prefix, valid, catalogue)
    yield from _roles(cloud, login, valid.get("controller") or Controller(), catalogue)
    yield from pool_problems(cloud, pools, catalogue)
    yield from _filesystems(valid)
    machines = [*pool_machines(pools, catalogue), *role_machines(_role_nodes(cloud), login.size, catalogue)]
    most, total = catalogue.limits["cluster_nodes"], sum(item.count for item in machines)
    if total > most:
        message = f"{total:,} machines with those of our own roles; Kubernetes is tested to {most:,} in one cluster"
        yield Problem(where="worker_nodes", message=message)
    sizes = {where: size for where, size, filesystem, _ in _shared(valid) if filesystem.id is None}
    yield from quota_problems(cloud, machines, sizes, catalogue)


def _kubernetes(cloud: NebiusCloud) -> Iterator[Problem]:
    kubernetes, where = cloud.kubernetes, "cloud.kubernetes"
    node_version = kubernetes.node_version
    if node_version is not None and node_version.split("-")[0] != kubernetes.version:
        message = f"{node_version} is not of Kubernetes {kubernetes.version}, as cloud.kubernetes.version says"
        yield Problem(where=f"{where}.node_version", message=message)
    if kubernetes.allowed_cidrs and not kubernetes.public_endpoint:
        message = "is for the public endpoint, and public_endpoint is false; remove one of them"
        yield Problem(where=f"{where}.allowed_cidrs", message=message)
    for cidr in kubernetes.allowed_cidrs:
        if ip_network(cidr).version != 4:
            message = f"{cidr} is an IPv6 range, and the endpoint has only IPv4"
            yield Problem(where=f"{where}.allowed_cidrs", message=message)
    if kubernetes.service_cidr is not None:
        network = ip_network(kubernetes.service_cidr)
        if network.version != 4 or not 12 <= network.prefixlen <= 28:
            message = f"{network} is not a range of Service addresses: IPv4, from /12 to /28"
            yield Problem(where=f"{where}.service_cidr", message=message)


def _settings(cloud: NebiusCloud, prefix: str, catalogue: Catalogue) -> Iterator[Problem]:
    size, most = sum(len(key) + 1 for key in cloud.ssh_keys), catalogue.limits["start_up_data"] - OWN_START_UP_DATA
    if size > most:
        message = f"{size:,} bytes of keys are more than a machine's start-up data can hold; {most:,} at most"
        yield Problem(where="cloud.ssh_keys", message=message)
    if cloud.backups.bucket is not None and not cloud.backups.enabled:
        yield Problem(where="cloud.backups.bucket", message="names a bucket, but backups.enabled is not true; set it")
    bucket = f"{prefix}-backups-{cloud.project_id.removeprefix('project-')}"
    if cloud.backups.enabled and cloud.backups.bucket is None and len(bucket) > catalogue.limits["name"]:
        message = f"must be set: {bucket!r} has {len(bucket)} characters; {catalogue.limits['name']} at most"
        yield Problem(where="cloud.backups.bucket", message=message)


def _names(cloud: NebiusCloud, prefix: str, valid: Mapping[str, Any], catalogue: Catalogue) -> Iterator[Problem]:
    most = catalogue.limits["name"]
    shorten = "" if cloud.name else " or set a short cloud.name"
    longest = f"{prefix}-controller"
    if len(longest) > most:
        message = (
            f"makes names such as {longest!r} of {len(longest)} characters; {most} at most: set a short cloud.name"
        )
        yield Problem(where="cluster.namespace", message=message)
        return
    for name, pool in (valid.get("worker_nodes") or {}).items():
        group = f"{prefix}-{name}-{pool.node_groups - 1}"
        if len(group) > most:
            message = (
                f"makes the node group {group!r} with a name of {len(group)} characters; {most} at most: shorten the "
                f"pool's name{shorten}"
            )
            yield Problem(where=f"worker_nodes.{name}", message=message)
    for name in valid.get("mounts") or {}:
        tag = f"mount-{name}"
        if len(tag) > catalogue.limits["mount_tag"]:
            message = (
                f"makes the mount tag {tag!r} of {len(tag)} characters; {catalogue.limits['mount_tag']} at most: "
                "shorten the mount's name"
            )
            yield Problem(where=f"mounts.{name}", message=message)


def _role_nodes(cloud: NebiusCloud) -> dict[str, SystemNodes]:
    return {
        "system_nodes": cloud.system_nodes,
        "controller_nodes": cloud.controller_nodes,
        "login_nodes": cloud.login_nodes,
    }


def _roles(cloud: NebiusCloud, login: Login, controller: Controller, catalogue: Catalogue) -> Iterator[Problem]:
    for name, nodes in _role_nodes(cloud).items():
        where = f"cloud.{name}"
        yield from boot_disk_problems(f"{where}.boot_disk", nodes.boot_disk, catalogue)
        platform = catalogue.platforms.get(nodes.platform)
        if platform is not None and any(preset.gpus for preset in platform.presets.values()):
            able = ", ".join(sorted(_cpu_platforms(cloud.region, catalogue)))
            message = f"{nodes.platform} has GPUs, which nothing would use here; platforms without: {able}"
            yield Problem(where=f"{where}.platform", message=message)
            continue
        problems, preset = machine(where, nodes.platform, nodes.preset, cloud.region, catalogue)
        yield from problems
        if preset is None:
            continue
        if name == "system_nodes" and preset.vcpus < SYSTEM_VCPUS:
            message = f"{nodes.preset} is too small for Kubernetes' own pods; {SYSTEM_VCPUS} virtual CPUs at least"
            yield Problem(where=f"{where}.preset", message=message)
        elif name == "controller_nodes":
            yield from _fits(
                where, nodes, preset, pods=1, cpu=controller.cpu, memory=controller.memory, of="controller"
            )
        elif name == "login_nodes":
            yield from _fits(where, nodes, preset, pods=login.size, cpu=login.cpu, memory=login.memory, of="login")


def _cpu_platforms(region: str, catalogue: Catalogue) -> Iterator[str]:
    for platform in catalogue.platforms.values():
        there = region not in catalogue.regions or region in platform.regions
        if there and not any(preset.gpus for preset in platform.presets.values()):
            yield platform.name


def _fits(
    where: str, nodes: SystemNodes, preset: Preset, *, pods: int, cpu: str, memory: str, of: str
) -> Iterator[Problem]:
    """One CPU and what the kubelet keeps are left to the machine, as for workers."""
    usable = allocatable_memory_gib(preset) * GIBIBYTE
    each = int(min((preset.vcpus - 1) / max(cpus(cpu), 0.001), usable / parse_bytes(memory)))
    if pods and not each:
        message = f"{nodes.preset} is too small for a pod with {cpu} CPU and {memory}, as {of}.cpu and {of}.memory say"
        yield Problem(where=f"{where}.preset", message=message)
    elif pods > each * nodes.max_size:
        message = (
            f"{nodes.max_size} machines of {nodes.preset} have room for {each * nodes.max_size} pods of {cpu} CPU and "
            f"{memory}, and {of}.size is {pods}; raise it"
        )
        yield Problem(where=f"{where}.max_size", message=message)


_ON_DISK_OTHERWISE = ("controller", "accounting.database")
"""Sections whose volume is a disk unless they name a file system."""


def _shared(valid: Mapping[str, Any]) -> Iterator[tuple[str, str, Filesystem, str | None]]:
    """Place, size, file system and storage class of every volume that is a shared file system here."""
    jail, controller = valid.get("jail") or Jail(), valid.get("controller") or Controller()
    yield "jail", jail.size, jail.filesystem, jail.storage_class
    if controller.filesystem is not None:
        yield "controller", controller.storage, controller.filesystem, controller.storage_class
    database = (valid.get("accounting") or Accounting()).database
    if database.filesystem is not None:
        yield "accounting.database", database.storage, database.filesystem, database.storage_class
    for name, mount in (valid.get("mounts") or {}).items():
        yield f"mounts.{name}", mount.size, mount.filesystem, mount.storage_class


def _filesystems(valid: Mapping[str, Any]) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for where, size, filesystem, storage_class in _shared(valid):
        if storage_class is not None:
            message = (
                f"is not used with {where}.filesystem; remove one of them"
                if where in _ON_DISK_OTHERWISE
                else "is not used here, where the volume is a shared file system of the cloud; remove it"
            )
            yield Problem(where=f"{where}.storage_class", message=message)
        if filesystem.id is None:
            yield from whole_gibibytes(f"{where}.{'storage' if where in _ON_DISK_OTHERWISE else 'size'}", size)
            continue
        for field in sorted(filesystem.model_fields_set - {"id"}):
            message = "cannot be chosen for a file system that exists already (filesystem.id); remove it"
            yield Problem(where=f"{where}.filesystem.{field}", message=message)
        owner = owners.setdefault(filesystem.id, where)
        if owner != where:
            message = f"{filesystem.id} is the file system of {owner} already; a machine can attach it only once"
            yield Problem(where=f"{where}.filesystem.id", message=message)
