"""What must hold in a stack file for the Nebius cloud, as far as neither the service nor Kubernetes says it as well."""

from __future__ import annotations

from collections.abc import Mapping

from config.cluster import Sections
from config.errors import Found, unknown_name
from config.nebius.cloud import NebiusCloud
from config.nebius.platforms import Catalogue, Platform, nebius_catalogue
from config.sections.workers import WorkerPool

IMAGE_ARCH = "amd64"
"""What our container images are built for."""


def nebius_problems(cloud: NebiusCloud, sections: Sections) -> Found:
    """Machines that there are not where they are wanted, or that Slurm could not use."""
    catalogue = nebius_catalogue()
    pools: Mapping[str, WorkerPool] = sections.get("worker_nodes")
    if cloud.region not in catalogue.regions:
        yield "cloud.region", unknown_name(cloud.region, catalogue.regions, what="a region")
    for role, nodes in cloud.roles.items():
        yield from _machine(f"cloud.{role}_nodes", nodes.platform, nodes.preset, cloud.region, catalogue)
    for name, pool in pools.items():
        where = f"worker_nodes.{name}"
        for field in ("platform", "preset"):
            if getattr(pool, field) is None:
                yield f"{where}.{field}", "is required but not set: this cloud makes the machines"
        if pool.platform is not None and pool.preset is not None:
            yield from _machine(where, pool.platform, pool.preset, cloud.region, catalogue)
            yield from _gpus(where, pool, catalogue)


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


def _not_there(platform: Platform, region: str, catalogue: Catalogue) -> str:
    there = [other.name for other in catalogue.platforms.values() if region in other.regions]
    return f"{platform.name} is not in {region}, but in {', '.join(platform.regions)}; {region} has {', '.join(there)}"


def _gpus(where: str, pool: WorkerPool, catalogue: Catalogue) -> Found:
    """What a job of several nodes would be slow without, and parts of GPUs, which nothing here would make."""
    preset = catalogue.preset(str(pool.platform), str(pool.preset))
    if preset is not None and preset.fabric and pool.gpu_cluster is None and pool.most > 1:
        message = (
            f"is required but not set: {pool.most} nodes of {pool.preset} need an InfiniBand fabric between them, "
            "for example {infiniband_fabric: fabric-6}; the console's Limits page shows the fabric of a reservation"
        )
        yield f"{where}.gpu_cluster", message
    if pool.resources.gpus.mig:
        message = "is not for this cloud, whose machines offer GPUs whole; remove it, and take shard for shares"
        yield f"{where}.resources.gpus.mig", message
