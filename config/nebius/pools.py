"""What must hold for the machines of a worker pool on Nebius: platforms, presets, fabrics, drivers, sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from config.base import GIBIBYTE, gibibytes, parse_bytes, parse_cpus
from config.errors import Problem, unknown_name
from config.nebius.cloud import NebiusCloud
from config.nebius.platforms import Catalogue, Platform, Preset, allocatable_memory_gib
from config.sections.machines import BootDisk
from config.sections.workers import Resources, WorkerPool

IMAGE_ARCH = "amd64"
"""What our container images are built for."""

_OWN_KEY = "slurmstack/"
_GPU_TAINT = "nvidia.com/gpu"


def pool_problems(cloud: NebiusCloud, pools: Mapping[str, WorkerPool], catalogue: Catalogue) -> Iterator[Problem]:
    """Everything that is wrong with the pools' machines, as far as the stack file alone can tell."""
    for name, pool in pools.items():
        where = f"worker_nodes.{name}"
        yield from _labels_and_taints(where, pool)
        yield from boot_disk_problems(f"{where}.boot_disk", pool.boot_disk, catalogue)
        yield from _bounds(where, pool)
        if pool.platform is None or pool.preset is None:
            for field in ("platform", "preset"):
                if getattr(pool, field) is None:
                    yield Problem(f"{where}.{field}", "is required but not set: this cloud makes the machines")
        else:
            problems, preset = machine(where, pool.platform, pool.preset, cloud.region, catalogue)
            yield from problems
            if preset is not None:
                yield from _preset_problems(where, pool, preset, cloud, catalogue)
    yield from _shared_fabrics(pools)


def machine(
    where: str, platform_name: str, preset_name: str, region: str, catalogue: Catalogue
) -> tuple[list[Problem], Preset | None]:
    """What is wrong with a choice of machine, and its preset if there is such a one that our images can run on."""
    platform = catalogue.platforms.get(platform_name)
    if platform is None:
        return [Problem(f"{where}.platform", unknown_name(platform_name, catalogue.platforms, what="a platform"))], None
    if platform.arch != IMAGE_ARCH:
        message = f"{platform_name} has {platform.arch} machines, and our images are built for {IMAGE_ARCH} only"
        return [Problem(f"{where}.platform", message)], None
    problems = []
    if region in catalogue.regions and region not in platform.regions:
        problems.append(Problem(f"{where}.platform", _not_there(platform, region, catalogue)))
    preset = platform.presets.get(preset_name)
    if preset is None:
        message = unknown_name(preset_name, platform.presets, what=f"a preset of {platform_name}")
        problems.append(Problem(f"{where}.preset", message))
    return problems, preset


def _not_there(platform: Platform, region: str, catalogue: Catalogue) -> str:
    has_gpus = any(preset.gpus for preset in platform.presets.values())
    instead = sorted(
        other.name
        for other in catalogue.platforms.values()
        if region in other.regions
        and other.arch == IMAGE_ARCH
        and any(preset.gpus for preset in other.presets.values()) == has_gpus
    )
    there = f"{region} has {', '.join(instead)}" if instead else f"{region} has nothing of its kind"
    return f"{platform.name} is not in {region}, but in {', '.join(platform.regions)}; {there}"


def boot_disk_problems(where: str, disk: BootDisk, catalogue: Catalogue) -> Iterator[Problem]:
    """What is wrong with the size of a disk that machines start from."""
    yield from whole_gibibytes(f"{where}.size", disk.size)
    most = catalogue.limits["disk_gib"]
    if parse_bytes(disk.size) > most * GIBIBYTE:
        yield Problem(f"{where}.size", f"{disk.size} is more than a disk can have; {most}Gi at most")


def whole_gibibytes(where: str, size: str) -> Iterator[Problem]:
    """Sizes go to the service in whole GiB."""
    if parse_bytes(size) % GIBIBYTE:
        yield Problem(where, f"{size} is no whole number of GiB, in which the cloud counts; {gibibytes(size)}Gi?")


def _labels_and_taints(where: str, pool: WorkerPool) -> Iterator[Problem]:
    for key in pool.labels:
        if key.startswith(_OWN_KEY) or "kubernetes.io" in key or "k8s.io" in key:
            message = f"has {key!r}, which we set ourselves or the service ignores; choose another key"
            yield Problem(f"{where}.labels", message)
    seen: set[tuple[str, str]] = set()
    for taint in pool.taints:
        if taint.key.startswith(_OWN_KEY) or taint.key == _GPU_TAINT:
            yield Problem(f"{where}.taints", f"has {taint.key!r}, which we set ourselves where it is needed; remove it")
        if (taint.key, taint.effect) in seen:
            message = f"has {taint.key!r} with effect {taint.effect} twice; Kubernetes allows it once"
            yield Problem(f"{where}.taints", message)
        seen.add((taint.key, taint.effect))


def _bounds(where: str, pool: WorkerPool) -> Iterator[Problem]:
    groups = pool.node_groups
    if pool.most > groups * pool.autoscaling.max_size:
        share = ceil(pool.most / groups)
        message = (
            f"{pool.autoscaling.max_size} in each of {groups} node {'group' if groups == 1 else 'groups'} is too few "
            f"for {pool.most} nodes; {share} at least, or leave it out"
        )
        yield Problem(f"{where}.autoscaling.max_size", message)


def _preset_problems(
    where: str, pool: WorkerPool, preset: Preset, cloud: NebiusCloud, catalogue: Catalogue
) -> Iterator[Problem]:
    yield from _too_large(f"{where}.resources", pool.resources, preset, str(pool.preset))
    yield from _kind_of_gpus(f"{where}.resources.gpus", pool, cloud)
    yield from _fabric(f"{where}.gpu_cluster", pool, preset, catalogue)
    yield from _drivers(f"{where}.drivers_preset", pool, preset, cloud, catalogue)
    if pool.reservation is not None and pool.reservation.policy != "FORBID":
        if not preset.gpus:
            message = f"is only for machines with GPUs, and {pool.platform} has none; remove it"
            yield Problem(f"{where}.reservation", message)
        elif pool.preemptible:
            message = (
                "is not possible with preemptible: true; reserved machines are never preempted. Remove one of them"
            )
            yield Problem(f"{where}.reservation", message)


def _too_large(where: str, resources: Resources, preset: Preset, name: str) -> Iterator[Problem]:
    if resources.cpus > preset.vcpus:
        message = f"{resources.cpus} is more than the {preset.vcpus} of {name}; leave it out, and it is computed"
        yield Problem(f"{where}.cpus", message)
    elif parse_cpus(resources.cpu_request or str(resources.cpus)) > preset.vcpus - 1:
        asked = "cpu_request" if resources.cpu_request else "cpus"
        message = (
            f"{resources.cpu_request or resources.cpus} of the {preset.vcpus} of {name} leaves less than one CPU to "
            "the machine itself, and the pod would never fit; leave it out, and it is computed"
        )
        yield Problem(f"{where}.{asked}", message)
    most = allocatable_memory_gib(preset)
    if parse_bytes(resources.memory) > most * GIBIBYTE:
        message = (
            f"{resources.memory} is more than the {int(most)}Gi that {name} has for pods; leave it out, and it is "
            "computed"
        )
        yield Problem(f"{where}.memory", message)
    if resources.gpus.count != preset.gpus:
        message = f"{resources.gpus.count} is not the {preset.gpus} of {name}, which one worker fills; leave it out"
        yield Problem(f"{where}.gpus", message)


def _kind_of_gpus(where: str, pool: WorkerPool, cloud: NebiusCloud) -> Iterator[Problem]:
    gpus = pool.resources.gpus
    if gpus.count and gpus.vendor != "nvidia":
        yield Problem(f"{where}.vendor", f"is {gpus.vendor}, and this cloud's GPUs are NVIDIA's; leave it out")
    if gpus.mig and cloud.gpu_stack != "operators":
        message = (
            "needs cloud.gpu_stack: operators, which divides the machines' GPUs and offers the parts to pods; set it, "
            "or remove mig"
        )
        yield Problem(f"{where}.mig", message)


def _fabric(where: str, pool: WorkerPool, preset: Preset, catalogue: Catalogue) -> Iterator[Problem]:
    if pool.gpu_cluster is None:
        if preset.fabric and pool.most > 1:
            message = (
                f"is required but not set: {pool.most} nodes of {pool.preset} need an InfiniBand fabric between them, "
                "for example {infiniband_fabric: fabric-6}; the console's Limits page shows the fabric of a reservation"
            )
            yield Problem(where, message)
    elif not preset.gpus:
        yield Problem(where, f"is only for machines with GPUs, and {pool.platform} has none; remove it")
    elif not preset.fabric:
        presets = catalogue.platforms[str(pool.platform)].presets
        able = ", ".join(sorted(name for name, other in presets.items() if other.fabric)) or "none of this platform"
        message = f"machines of {pool.preset} cannot be in a GPU cluster; presets that can: {able}. Or remove it"
        yield Problem(where, message)


def _drivers(
    where: str, pool: WorkerPool, preset: Preset, cloud: NebiusCloud, catalogue: Catalogue
) -> Iterator[Problem]:
    chosen, version = pool.drivers_preset, cloud.kubernetes.version
    if not preset.gpus:
        if chosen is not None:
            yield Problem(where, f"is only for machines with GPUs, and {pool.platform} has none; remove it")
    elif cloud.gpu_stack == "operators":
        if chosen is not None:
            message = (
                "is for preinstalled drivers, but cloud.gpu_stack is operators, which installs its own; remove one"
            )
            yield Problem(where, message)
    elif version not in catalogue.drivers:
        if chosen is None:
            known = ", ".join(sorted(catalogue.drivers))
            message = (
                f"must be set for Kubernetes {version}, whose drivers this release does not know (it knows {known}); "
                "or change cloud.kubernetes.version"
            )
            yield Problem(where, message)
    elif chosen is not None and chosen not in catalogue.drivers[version]:
        what = f"a drivers preset for Kubernetes {version}"
        yield Problem(where, unknown_name(chosen, catalogue.drivers[version], what=what))


def _shared_fabrics(pools: Mapping[str, WorkerPool]) -> Iterator[Problem]:
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
            yield Problem(f"worker_nodes.{name}.gpu_cluster", message)
