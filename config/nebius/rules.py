"""What must hold in a stack file for the Nebius cloud: everything that can be known without asking the service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_network

from config.base import GIBIBYTE, parse_bytes, parse_cpus
from config.errors import Problem, unknown_name
from config.nebius.cloud import NebiusCloud, SystemNodes
from config.nebius.needs import FilesystemNeed, node_needs, shared_filesystems
from config.nebius.platforms import Catalogue, Preset, allocatable_memory_gib, nebius_catalogue
from config.nebius.pools import boot_disk_problems, machine, pool_problems, whole_gibibytes
from config.nebius.quotas import quota_problems
from config.rules.stack_file import Sections
from config.sections.accounting import Accounting
from config.sections.jail import Jail
from config.sections.services import Cluster, Controller, Login
from config.sections.workers import WorkerPool

SYSTEM_VCPUS = 4
"""Virtual CPUs of a system machine at least, for Kubernetes' own pods there (CoreDNS, Cilium, metrics) and our jobs.
The vendor's recipe asks for 8, for a dozen operators that we do not have. Not measured on the real cloud."""

OWN_START_UP_DATA = 4096
"""Bytes of a machine's cloud-init data that we keep for ourselves: the mounts of the shared file systems."""


def nebius_problems(cloud: NebiusCloud, sections: Sections) -> Iterator[Problem]:
    """Everything that is wrong for this cloud."""
    catalogue = nebius_catalogue()
    pools: Mapping[str, WorkerPool] = sections.get("worker_nodes")
    login: Login = sections.get("login") or Login()
    if cloud.region not in catalogue.regions:
        yield Problem("cloud.region", unknown_name(cloud.region, catalogue.regions, what="a region"))
    yield from _kubernetes(cloud)
    prefix = cloud.prefix((sections.get("cluster") or Cluster()).namespace)
    yield from _settings(cloud, prefix, catalogue)
    yield from _names(cloud, prefix, sections, catalogue)
    controller: Controller = sections.get("controller") or Controller()
    yield from _roles(cloud, login, controller, catalogue)
    yield from pool_problems(cloud, pools, catalogue)
    filesystems = shared_filesystems(
        sections.get("jail") or Jail(),
        controller,
        sections.get("accounting") or Accounting(),
        sections.get("mounts"),
    )
    yield from _filesystems(filesystems)
    nodes = sorted(node_needs(cloud, pools, login.size, controller.replicas), key=lambda node: node.pool is None)
    most, total = catalogue.limits["cluster_nodes"], sum(node.at_once for node in nodes)
    if total > most:
        message = f"{total:,} machines with those of our own roles; Kubernetes is tested to {most:,} in one cluster"
        yield Problem("worker_nodes", message)
    yield from quota_problems(cloud, nodes, filesystems, catalogue)


def _kubernetes(cloud: NebiusCloud) -> Iterator[Problem]:
    kubernetes, where = cloud.kubernetes, "cloud.kubernetes"
    node_version = kubernetes.node_version
    if node_version is not None and node_version.split("-")[0] != kubernetes.version:
        message = f"{node_version} is not of Kubernetes {kubernetes.version}, as cloud.kubernetes.version says"
        yield Problem(f"{where}.node_version", message)
    if kubernetes.allowed_cidrs and not kubernetes.public_endpoint:
        message = "is for the public endpoint, and public_endpoint is false; remove one of them"
        yield Problem(f"{where}.allowed_cidrs", message)
    for cidr in kubernetes.allowed_cidrs:
        if ip_network(cidr).version != 4:
            yield Problem(f"{where}.allowed_cidrs", f"{cidr} is an IPv6 range, and the endpoint has only IPv4")
    if kubernetes.service_cidr is not None:
        network = ip_network(kubernetes.service_cidr)
        if network.version != 4 or not 12 <= network.prefixlen <= 28:
            message = f"{network} is not a range of Service addresses: IPv4, from /12 to /28"
            yield Problem(f"{where}.service_cidr", message)


def _settings(cloud: NebiusCloud, prefix: str, catalogue: Catalogue) -> Iterator[Problem]:
    size, most = sum(len(key) + 1 for key in cloud.ssh_keys), catalogue.limits["start_up_data"] - OWN_START_UP_DATA
    if size > most:
        message = f"{size:,} bytes of keys are more than a machine's start-up data can hold; {most:,} at most"
        yield Problem("cloud.ssh_keys", message)
    if cloud.backups.bucket is not None and not cloud.backups.enabled:
        yield Problem("cloud.backups.bucket", "names a bucket, but backups.enabled is not true; set it")
    bucket = f"{prefix}-backups-{cloud.project_id.removeprefix('project-')}"
    if cloud.backups.enabled and cloud.backups.bucket is None and len(bucket) > catalogue.limits["name"]:
        message = f"must be set: {bucket!r} has {len(bucket)} characters; {catalogue.limits['name']} at most"
        yield Problem("cloud.backups.bucket", message)


def _names(cloud: NebiusCloud, prefix: str, sections: Sections, catalogue: Catalogue) -> Iterator[Problem]:
    most = catalogue.limits["name"]
    shorten = "" if cloud.name else " or set a short cloud.name"
    longest = f"{prefix}-controller"
    if len(longest) > most:
        message = (
            f"makes names such as {longest!r} of {len(longest)} characters; {most} at most: set a short cloud.name"
        )
        yield Problem("cluster.namespace", message)
        return
    for name, pool in sections.get("worker_nodes").items():
        group = f"{prefix}-{name}-{pool.node_groups - 1}"
        if len(group) > most:
            message = (
                f"makes the node group {group!r} with a name of {len(group)} characters; {most} at most: shorten the "
                f"pool's name{shorten}"
            )
            yield Problem(f"worker_nodes.{name}", message)
    for name in sections.get("mounts"):
        tag = f"mount-{name}"
        if len(tag) > catalogue.limits["mount_tag"]:
            message = (
                f"makes the mount tag {tag!r} of {len(tag)} characters; {catalogue.limits['mount_tag']} at most: "
                "shorten the mount's name"
            )
            yield Problem(f"mounts.{name}", message)


def _roles(cloud: NebiusCloud, login: Login, controller: Controller, catalogue: Catalogue) -> Iterator[Problem]:
    for role, nodes in cloud.roles.items():
        where = f"cloud.{role}_nodes"
        yield from boot_disk_problems(f"{where}.boot_disk", nodes.boot_disk, catalogue)
        platform = catalogue.platforms.get(nodes.platform)
        if platform is not None and any(preset.gpus for preset in platform.presets.values()):
            able = ", ".join(sorted(_cpu_platforms(cloud.region, catalogue)))
            message = f"{nodes.platform} has GPUs, which nothing would use here; platforms without: {able}"
            yield Problem(f"{where}.platform", message)
            continue
        problems, preset = machine(where, nodes.platform, nodes.preset, cloud.region, catalogue)
        yield from problems
        if preset is None:
            continue
        if role == "system" and preset.vcpus < SYSTEM_VCPUS:
            message = f"{nodes.preset} is too small for Kubernetes' own pods; {SYSTEM_VCPUS} virtual CPUs at least"
            yield Problem(f"{where}.preset", message)
        elif role == "controller":
            yield from _fits(
                where, nodes, preset, pods=1, cpu=controller.cpu, memory=controller.memory, of="controller"
            )
        elif role == "login":
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
    each = int(min((preset.vcpus - 1) / max(parse_cpus(cpu), 0.001), usable / parse_bytes(memory)))
    if pods and not each:
        message = f"{nodes.preset} is too small for a pod with {cpu} CPU and {memory}, as {of}.cpu and {of}.memory say"
        yield Problem(f"{where}.preset", message)
    elif pods > each * nodes.max_size:
        message = (
            f"{nodes.max_size} machines of {nodes.preset} have room for {each * nodes.max_size} pods of {cpu} CPU and "
            f"{memory}, and {of}.size is {pods}; raise it"
        )
        yield Problem(f"{where}.max_size", message)


def _filesystems(filesystems: Iterable[FilesystemNeed]) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for item in filesystems:
        where, id_ = item.section, item.existing_id
        if item.storage_class is not None:
            message = (
                f"is not used with {where}.filesystem; remove one of them"
                if item.size_key == "storage"  # a disk, unless a file system is named
                else "is not used here, where the volume is a shared file system of the cloud; remove it"
            )
            yield Problem(f"{where}.storage_class", message)
        if id_ is None:
            yield from whole_gibibytes(item.where, item.size)
            continue
        for field in sorted(item.filesystem.model_fields_set - {"id"}):
            message = "cannot be chosen for a file system that exists already (filesystem.id); remove it"
            yield Problem(f"{where}.filesystem.{field}", message)
        owner = owners.setdefault(id_, where)
        if owner != where:
            message = f"{id_} is the file system of {owner} already; a machine can attach it only once"
            yield Problem(f"{where}.filesystem.id", message)
