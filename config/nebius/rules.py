"""What must hold in a stack file for the Nebius cloud: everything that can be known without asking the service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_network
from math import ceil

from config.base import GIBIBYTE, gibibytes, parse_bytes, parse_cpus
from config.cluster import Sections
from config.errors import Found, unknown_name
from config.nebius.cloud import NebiusCloud, SystemNodes
from config.nebius.needs import FilesystemNeed, NodeNeed, node_needs, shared_filesystems
from config.nebius.platforms import Catalogue, Platform, Preset, allocatable_memory_gib, nebius_catalogue
from config.sections.accounting import Accounting
from config.sections.machines import BootDisk
from config.sections.services import Cluster, Controller, Login
from config.sections.storage import Jail
from config.sections.workers import Resources, WorkerPool

SYSTEM_VCPUS = 4
"""Virtual CPUs of a system machine at least, for Kubernetes' own pods there (CoreDNS, Cilium, metrics) and our jobs.
The vendor's recipe asks for 8, for a dozen operators that we do not have. Not measured on the real cloud."""

OWN_START_UP_DATA = 4096
"""Bytes of a machine's cloud-init data that we keep for ourselves: the mounts of the shared file systems."""

IMAGE_ARCH = "amd64"
"""What our container images are built for."""

_OWN_KEY = "slurmstack/"
_GPU_TAINT = "nvidia.com/gpu"


def nebius_problems(cloud: NebiusCloud, sections: Sections) -> Found:
    """Everything that is wrong for this cloud."""
    catalogue = nebius_catalogue()
    pools: Mapping[str, WorkerPool] = sections.get("worker_nodes")
    login: Login = sections.get("login") or Login()
    controller: Controller = sections.get("controller") or Controller()
    if cloud.region not in catalogue.regions:
        yield "cloud.region", unknown_name(cloud.region, catalogue.regions, what="a region")
    yield from _kubernetes(cloud)
    prefix = cloud.prefix((sections.get("cluster") or Cluster()).namespace)
    yield from _settings(cloud, prefix, catalogue)
    yield from _names(cloud, prefix, sections, catalogue)
    yield from _roles(cloud, login, controller, catalogue)
    yield from _pools(cloud, pools, catalogue)
    filesystems = shared_filesystems(
        sections.get("jail") or Jail(), controller, sections.get("accounting") or Accounting(), sections.get("mounts")
    )
    yield from _filesystems(filesystems)
    nodes = sorted(node_needs(cloud, pools, login.size, controller.replicas), key=lambda node: node.pool is None)
    most, total = catalogue.limits["cluster_nodes"], sum(node.at_once for node in nodes)
    if total > most:
        message = f"{total:,} machines with those of our own roles; Kubernetes is tested to {most:,} in one cluster"
        yield "worker_nodes", message
    yield from _quotas(cloud, nodes, filesystems, catalogue)


def _kubernetes(cloud: NebiusCloud) -> Found:
    kubernetes, where = cloud.kubernetes, "cloud.kubernetes"
    node_version = kubernetes.node_version
    if node_version is not None and node_version.split("-")[0] != kubernetes.version:
        message = f"{node_version} is not of Kubernetes {kubernetes.version}, as cloud.kubernetes.version says"
        yield f"{where}.node_version", message
    if kubernetes.allowed_cidrs and not kubernetes.public_endpoint:
        message = "is for the public endpoint, and public_endpoint is false; remove one of them"
        yield f"{where}.allowed_cidrs", message
    for cidr in kubernetes.allowed_cidrs:
        if ip_network(cidr).version != 4:
            yield f"{where}.allowed_cidrs", f"{cidr} is an IPv6 range, and the endpoint has only IPv4"
    if kubernetes.service_cidr is not None:
        network = ip_network(kubernetes.service_cidr)
        if network.version != 4 or not 12 <= network.prefixlen <= 28:
            yield f"{where}.service_cidr", f"{network} is not a range of Service addresses: IPv4, from /12 to /28"


def _settings(cloud: NebiusCloud, prefix: str, catalogue: Catalogue) -> Found:
    size, most = sum(len(key) + 1 for key in cloud.ssh_keys), catalogue.limits["start_up_data"] - OWN_START_UP_DATA
    if size > most:
        message = f"{size:,} bytes of keys are more than a machine's start-up data can hold; {most:,} at most"
        yield "cloud.ssh_keys", message
    if cloud.backups.bucket is not None and not cloud.backups.enabled:
        yield "cloud.backups.bucket", "names a bucket, but backups.enabled is not true; set it"
    bucket = f"{prefix}-backups-{cloud.project_id.removeprefix('project-')}"
    if cloud.backups.enabled and cloud.backups.bucket is None and len(bucket) > catalogue.limits["name"]:
        message = f"must be set: {bucket!r} has {len(bucket)} characters; {catalogue.limits['name']} at most"
        yield "cloud.backups.bucket", message


def _names(cloud: NebiusCloud, prefix: str, sections: Sections, catalogue: Catalogue) -> Found:
    most = catalogue.limits["name"]
    shorten = "" if cloud.name else " or set a short cloud.name"
    longest = f"{prefix}-controller"
    if len(longest) > most:
        message = (
            f"makes names such as {longest!r} of {len(longest)} characters; {most} at most: set a short cloud.name"
        )
        yield "cluster.namespace", message
        return
    for name, pool in sections.get("worker_nodes").items():
        group = f"{prefix}-{name}-{pool.node_groups - 1}"
        if len(group) > most:
            message = (
                f"makes the node group {group!r} with a name of {len(group)} characters; {most} at most: shorten the "
                f"pool's name{shorten}"
            )
            yield f"worker_nodes.{name}", message
    for name in sections.get("mounts"):
        tag, most = f"mount-{name}", catalogue.limits["mount_tag"]
        if len(tag) > most:
            message = f"makes the mount tag {tag!r} of {len(tag)} characters; {most} at most: shorten the mount's name"
            yield f"mounts.{name}", message


def _roles(cloud: NebiusCloud, login: Login, controller: Controller, catalogue: Catalogue) -> Found:
    for role, nodes in cloud.roles.items():
        where = f"cloud.{role}_nodes"
        yield from _boot_disk(f"{where}.boot_disk", nodes.boot_disk, catalogue)
        platform = catalogue.platforms.get(nodes.platform)
        if platform is not None and platform.has_gpus:
            able = ", ".join(sorted(_cpu_platforms(cloud.region, catalogue)))
            message = f"{nodes.platform} has GPUs, which nothing would use here; platforms without: {able}"
            yield f"{where}.platform", message
            continue
        yield from _machine(where, nodes.platform, nodes.preset, cloud.region, catalogue)
        preset = _usable_preset(nodes.platform, nodes.preset, catalogue)
        if preset is None:
            continue
        if role == "system" and preset.vcpus < SYSTEM_VCPUS:
            message = f"{nodes.preset} is too small for Kubernetes' own pods; {SYSTEM_VCPUS} virtual CPUs at least"
            yield f"{where}.preset", message
        elif role == "controller":
            yield from _fits(
                where, nodes, preset, pods=1, cpu=controller.cpu, memory=controller.memory, of="controller"
            )
        elif role == "login":
            yield from _fits(where, nodes, preset, pods=login.size, cpu=login.cpu, memory=login.memory, of="login")


def _cpu_platforms(region: str, catalogue: Catalogue) -> Iterator[str]:
    for platform in catalogue.platforms.values():
        if (region not in catalogue.regions or region in platform.regions) and not platform.has_gpus:
            yield platform.name


def _fits(where: str, nodes: SystemNodes, preset: Preset, *, pods: int, cpu: str, memory: str, of: str) -> Found:
    """One CPU and what the kubelet keeps are left to the machine, as for workers."""
    usable = allocatable_memory_gib(preset) * GIBIBYTE
    each = int(min((preset.vcpus - 1) / max(parse_cpus(cpu), 0.001), usable / parse_bytes(memory)))
    if pods and not each:
        message = f"{nodes.preset} is too small for a pod with {cpu} CPU and {memory}, as {of}.cpu and {of}.memory say"
        yield f"{where}.preset", message
    elif pods > each * nodes.max_size:
        message = (
            f"{nodes.max_size} machines of {nodes.preset} have room for {each * nodes.max_size} pods of {cpu} CPU and "
            f"{memory}, and {of}.size is {pods}; raise it"
        )
        yield f"{where}.max_size", message


def _filesystems(filesystems: Iterable[FilesystemNeed]) -> Found:
    owners: dict[str, str] = {}
    for item in filesystems:
        where, id_ = item.section, item.existing_id
        if item.storage_class is not None:
            message = (
                f"is not used with {where}.filesystem; remove one of them"
                if item.size_key == "storage"  # a disk, unless a file system is named
                else "is not used here, where the volume is a shared file system of the cloud; remove it"
            )
            yield f"{where}.storage_class", message
        if id_ is None:
            yield from _whole_gibibytes(item.where, item.size)
            continue
        for field in sorted(item.filesystem.model_fields_set - {"id"}):
            message = "cannot be chosen for a file system that exists already (filesystem.id); remove it"
            yield f"{where}.filesystem.{field}", message
        owner = owners.setdefault(id_, where)
        if owner != where:
            message = f"{id_} is the file system of {owner} already; a machine can attach it only once"
            yield f"{where}.filesystem.id", message


def _pools(cloud: NebiusCloud, pools: Mapping[str, WorkerPool], catalogue: Catalogue) -> Found:
    """Everything that is wrong with the pools' machines, as far as the stack file alone can tell."""
    for name, pool in pools.items():
        where = f"worker_nodes.{name}"
        yield from _labels_and_taints(where, pool)
        yield from _boot_disk(f"{where}.boot_disk", pool.boot_disk, catalogue)
        groups = pool.node_groups
        if pool.most > groups * pool.autoscaling.max_size:
            message = (
                f"{pool.autoscaling.max_size} in each of {groups} node {'group' if groups == 1 else 'groups'} is too "
                f"few for {pool.most} nodes; {ceil(pool.most / groups)} at least, or leave it out"
            )
            yield f"{where}.autoscaling.max_size", message
        for field in ("platform", "preset"):
            if getattr(pool, field) is None:
                yield f"{where}.{field}", "is required but not set: this cloud makes the machines"
        if pool.platform is not None and pool.preset is not None:
            yield from _machine(where, pool.platform, pool.preset, cloud.region, catalogue)
            preset = _usable_preset(pool.platform, pool.preset, catalogue)
            if preset is not None:
                yield from _of_preset(where, pool, preset, cloud, catalogue)
    yield from _shared_fabrics(pools)


def _machine(where: str, platform_name: str, preset_name: str, region: str, catalogue: Catalogue) -> Found:
    """What is wrong with a choice of machine."""
    platform = catalogue.platforms.get(platform_name)
    if platform is None:
        yield f"{where}.platform", unknown_name(platform_name, catalogue.platforms, what="a platform")
    elif platform.arch != IMAGE_ARCH:
        message = f"{platform_name} has {platform.arch} machines, and our images are built for {IMAGE_ARCH} only"
        yield f"{where}.platform", message
    else:
        if region in catalogue.regions and region not in platform.regions:
            yield f"{where}.platform", _not_there(platform, region, catalogue)
        if preset_name not in platform.presets:
            what = f"a preset of {platform_name}"
            yield f"{where}.preset", unknown_name(preset_name, platform.presets, what=what)


def _usable_preset(platform: str, preset: str, catalogue: Catalogue) -> Preset | None:
    """A preset, if there is such a one that our images can run on."""
    runs = platform in catalogue.platforms and catalogue.platforms[platform].arch == IMAGE_ARCH
    return catalogue.preset(platform, preset) if runs else None


def _not_there(platform: Platform, region: str, catalogue: Catalogue) -> str:
    instead = sorted(
        other.name
        for other in catalogue.platforms.values()
        if region in other.regions and other.arch == IMAGE_ARCH and other.has_gpus == platform.has_gpus
    )
    there = f"{region} has {', '.join(instead)}" if instead else f"{region} has nothing of its kind"
    return f"{platform.name} is not in {region}, but in {', '.join(platform.regions)}; {there}"


def _boot_disk(where: str, disk: BootDisk, catalogue: Catalogue) -> Found:
    yield from _whole_gibibytes(f"{where}.size", disk.size)
    most = catalogue.limits["disk_gib"]
    if parse_bytes(disk.size) > most * GIBIBYTE:
        yield f"{where}.size", f"{disk.size} is more than a disk can have; {most}Gi at most"


def _whole_gibibytes(where: str, size: str) -> Found:
    """Sizes go to the service in whole GiB."""
    if parse_bytes(size) % GIBIBYTE:
        yield where, f"{size} is no whole number of GiB, in which the cloud counts; {gibibytes(size)}Gi?"


def _labels_and_taints(where: str, pool: WorkerPool) -> Found:
    for key in pool.labels:
        if key.startswith(_OWN_KEY) or "kubernetes.io" in key or "k8s.io" in key:
            yield f"{where}.labels", f"has {key!r}, which we set ourselves or the service ignores; choose another key"
    seen: set[tuple[str, str]] = set()
    for taint in pool.taints:
        if taint.key.startswith(_OWN_KEY) or taint.key == _GPU_TAINT:
            yield f"{where}.taints", f"has {taint.key!r}, which we set ourselves where it is needed; remove it"
        if (taint.key, taint.effect) in seen:
            message = f"has {taint.key!r} with effect {taint.effect} twice; Kubernetes allows it once"
            yield f"{where}.taints", message
        seen.add((taint.key, taint.effect))


def _of_preset(where: str, pool: WorkerPool, preset: Preset, cloud: NebiusCloud, catalogue: Catalogue) -> Found:
    yield from _too_large(f"{where}.resources", pool.resources, preset, str(pool.preset))
    gpus, no_gpus = pool.resources.gpus, f"is only for machines with GPUs, and {pool.platform} has none; remove it"
    if gpus.count and gpus.vendor != "nvidia":
        message = f"is {gpus.vendor}, and this cloud's GPUs are NVIDIA's; leave it out"
        yield f"{where}.resources.gpus.vendor", message
    if gpus.mig and cloud.gpu_stack != "operators":
        message = (
            "needs cloud.gpu_stack: operators, which divides the machines' GPUs and offers the parts to pods; set it, "
            "or remove mig"
        )
        yield f"{where}.resources.gpus.mig", message
    if pool.gpu_cluster is not None and not preset.gpus:
        yield f"{where}.gpu_cluster", no_gpus
    else:
        yield from _fabric(f"{where}.gpu_cluster", pool, preset, catalogue)
    if preset.gpus:
        yield from _drivers(f"{where}.drivers_preset", pool.drivers_preset, cloud, catalogue)
    elif pool.drivers_preset is not None:
        yield f"{where}.drivers_preset", no_gpus
    if pool.reservation is not None and pool.reservation.policy != "FORBID":
        if not preset.gpus:
            yield f"{where}.reservation", no_gpus
        elif pool.preemptible:
            message = (
                "is not possible with preemptible: true; reserved machines are never preempted. Remove one of them"
            )
            yield f"{where}.reservation", message


def _too_large(where: str, resources: Resources, preset: Preset, name: str) -> Found:
    if resources.cpus > preset.vcpus:
        message = f"{resources.cpus} is more than the {preset.vcpus} of {name}; leave it out, and it is computed"
        yield f"{where}.cpus", message
    elif parse_cpus(resources.cpu_request or str(resources.cpus)) > preset.vcpus - 1:
        asked = "cpu_request" if resources.cpu_request else "cpus"
        message = (
            f"{resources.cpu_request or resources.cpus} of the {preset.vcpus} of {name} leaves less than one CPU to "
            "the machine itself, and the pod would never fit; leave it out, and it is computed"
        )
        yield f"{where}.{asked}", message
    most = allocatable_memory_gib(preset)
    if parse_bytes(resources.memory) > most * GIBIBYTE:
        message = (
            f"{resources.memory} is more than the {int(most)}Gi that {name} has for pods; leave it out, and it is "
        )
        yield f"{where}.memory", message + "computed"
    if resources.gpus.count != preset.gpus:
        message = f"{resources.gpus.count} is not the {preset.gpus} of {name}, which one worker fills; leave it out"
        yield f"{where}.gpus", message


def _fabric(where: str, pool: WorkerPool, preset: Preset, catalogue: Catalogue) -> Found:
    if pool.gpu_cluster is None and preset.fabric and pool.most > 1:
        message = (
            f"is required but not set: {pool.most} nodes of {pool.preset} need an InfiniBand fabric between them, "
            "for example {infiniband_fabric: fabric-6}; the console's Limits page shows the fabric of a reservation"
        )
        yield where, message
    if pool.gpu_cluster is not None and not preset.fabric:
        presets = catalogue.platforms[str(pool.platform)].presets
        able = ", ".join(sorted(name for name, other in presets.items() if other.fabric)) or "none of this platform"
        message = f"machines of {pool.preset} cannot be in a GPU cluster; presets that can: {able}. Or remove it"
        yield where, message


def _drivers(where: str, chosen: str | None, cloud: NebiusCloud, catalogue: Catalogue) -> Found:
    version = cloud.kubernetes.version
    if cloud.gpu_stack == "operators":
        if chosen is not None:
            message = (
                "is for preinstalled drivers, but cloud.gpu_stack is operators, which installs its own; remove one"
            )
            yield where, message
    elif version not in catalogue.drivers:
        if chosen is None:
            known = ", ".join(sorted(catalogue.drivers))
            message = (
                f"must be set for Kubernetes {version}, whose drivers this release does not know (it knows {known}); "
                "or change cloud.kubernetes.version"
            )
            yield where, message
    elif chosen is not None and chosen not in catalogue.drivers[version]:
        what = f"a drivers preset for Kubernetes {version}"
        yield where, unknown_name(chosen, catalogue.drivers[version], what=what)


def _shared_fabrics(pools: Mapping[str, WorkerPool]) -> Found:
    first: dict[str, tuple[str, str]] = {}
    for name, pool in pools.items():
        if pool.gpu_cluster is None or pool.platform is None:
            continue
        fabric = pool.gpu_cluster.id or str(pool.gpu_cluster.infiniband_fabric)
        other, platform = first.setdefault(fabric, (name, pool.platform))
        if platform != pool.platform:
            message = (
                f"{fabric} is the fabric of the pool {other!r} with {platform}, and a fabric has machines of one "
                f"platform only; {pool.platform} needs another fabric"
            )
            yield f"worker_nodes.{name}.gpu_cluster", message


def _quotas(
    cloud: NebiusCloud, nodes: Sequence[NodeNeed], filesystems: Iterable[FilesystemNeed], catalogue: Catalogue
) -> Found:
    """What is more than a quota that the stack states."""
    quotas = cloud.quotas
    machines = {node.where.rpartition(".")[2]: node for node in nodes}
    for platform, most in quotas.gpus.items():
        where = f"cloud.quotas.gpus.{platform}"
        if platform not in catalogue.platforms:
            yield where, unknown_name(platform, catalogue.platforms, what="a platform")
            continue
        counted = {name: node for name, node in machines.items() if node.platform == platform and not node.reserved}
        gpus = {name: node.at_once * node.size.gpus for name, node in counted.items()}
        yield from _over(where, gpus, most, what="GPUs")
    there = {name: node.at_once for name, node in machines.items()}
    yield from _over("cloud.quotas.nodes", there, quotas.nodes, what="machines")
    vcpus = {name: node.at_once * node.size.vcpus for name, node in machines.items() if not node.size.gpus}
    yield from _over("cloud.quotas.vcpus", vcpus, quotas.vcpus, what="virtual CPUs")
    disks = {name: node.at_once * node.disk_gib for name, node in machines.items()}
    yield from _over("cloud.quotas.disk_size", disks, _most_gib(quotas.disk_size), what="GiB of boot disks")
    sizes = {item.section: item.size_gib for item in filesystems if item.existing_id is None}
    most_size = _most_gib(quotas.filesystem_size)
    yield from _over("cloud.quotas.filesystem_size", sizes, most_size, what="GiB of file systems")


def _over(where: str, needed: Mapping[str, int], most: int | None, *, what: str) -> Found:
    total = sum(needed.values())
    if most is not None and total > most:
        parts = ", ".join(f"{name} {amount:,}" for name, amount in needed.items() if amount)
        yield where, f"the stack takes {total:,} {what} ({parts}) and the quota is {most:,}; ask for more, or take less"


def _most_gib(size: str | None) -> int | None:
    return None if size is None else parse_bytes(size) // GIBIBYTE
