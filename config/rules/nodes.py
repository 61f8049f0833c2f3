"""What must hold for pools of workers and their machines, for what looks at nodes, and for which jobs run there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from config.base import MAX_NODES, span_seconds
from config.cluster import Sections
from config.errors import Found, unknown_name
from config.nebius.platforms import Catalogue, Platform, nebius_catalogue
from config.sections.accounting import Qos
from config.sections.cloud import NebiusCloud
from config.sections.slurm import Partition, Preemption, Slurm, folded
from config.sections.workers import WorkerPool

Pools = Mapping[str, WorkerPool]
Partitions = Mapping[str, Partition]


def pools(sections: Sections, worker_nodes: Pools) -> Found:
    """Names that Slurm can tell apart, and not too many nodes."""
    names = sections.names("worker_nodes")
    total = sum(pool.most for pool in worker_nodes.values())
    if total > MAX_NODES:
        yield "worker_nodes", f"{total} nodes in all pools together; {MAX_NODES} at most"
    for name in names:
        stem = re.sub(r"-\d+$", "", name)
        if stem != name and stem in names:
            message = f"is also the name of a node of the pool {stem!r}, and Slurm allows a name only once"
            yield f"worker_nodes.{name}", message
    for name, pool in worker_nodes.items():
        for feature in pool.features:
            if feature != name and feature in names:
                message = f"{feature!r} is the name of another pool, whose partitions would take these nodes too: "
                message += "Slurm tells the nodes of a pool by this feature; take another name"
                yield f"worker_nodes.{name}.features", message
    if sections.written.get("worker_nodes") == {}:
        yield "worker_nodes", "has no pool; write at least one, for example 'default: {size: 2, ...}'"


def partitions(sections: Sections, partitions: Partitions) -> Found:
    """Pools that are there, and one default."""
    names = sections.names("worker_nodes")
    for name, partition in partitions.items():
        for pool in partition.pools:
            if names and pool not in names:
                yield f"partitions.{name}.pools", unknown_name(pool, names, what="a pool of worker_nodes")
    default = [name for name, partition in partitions.items() if partition.default]
    if len(default) > 1:
        yield "partitions", f"{' and '.join(default)} are all marked default; only one partition can be"


def preemption(preemption: Preemption, qos: Mapping[str, Qos], partitions: Partitions, slurm: Slurm | None) -> Found:
    """Modes that would do something else than they say."""
    if preemption.type == "qos":
        own = folded(slurm.settings).get("preemptmode") if slurm is not None else None
        modes: dict[str, str | None] = {f"qos.{name}.preempt_mode": one.preempt_mode for name, one in qos.items()}
        modes = {"preemption.mode": preemption.mode, "slurm.settings.PreemptMode": str(own).lower(), **modes}
        for where, mode in modes.items():
            if mode is not None and "suspend" in mode:
                message = (
                    "suspend is not for preemption.type qos: victim and preemptor take turns on the nodes then "
                    "(slurm.conf(5), PreemptMode=SUSPEND); take requeue or cancel, or preemption.type partition"
                )
                yield where, message
    if preemption.type == "partition" and preemption.mode != "suspend":
        for name, partition in partitions.items():
            if partition.preempt_mode == "suspend":
                message = (
                    "suspend needs PreemptMode=SUSPEND,GANG for the whole cluster; set preemption.mode suspend, and "
                    "another preempt_mode for the partitions whose jobs shall not be suspended"
                )
                yield f"partitions.{name}.preempt_mode", message


HIDDEN: Final = "elastic-"
"""What the names of the partitions begin with that only carry the times of an elastic pool."""

_OF_ELASTIC_POOLS: Final = (
    "prologslurmctld", "suspendtime", "suspendtimeout", "resumetimeout", "resumerate", "suspendrate", "suspendexcnodes",
    "suspendexcstates", "suspendexcparts",
)  # fmt: skip


def elastic(worker_nodes: Pools, slurm: Slurm | None, partitions: Partitions) -> Found:
    """Settings that do not go with elastic pools, and names that are taken."""
    pools = {name: pool for name, pool in worker_nodes.items() if pool.is_elastic}
    if not pools:
        return
    first = next(iter(pools))
    ours = f"is what starts and ends the nodes of the elastic pool {first!r}; remove it, or give the pool a fixed size"
    written = folded(slurm.settings) if slurm is not None else {}
    for key in _OF_ELASTIC_POOLS:
        if key in written:
            yield f"slurm.settings.{key}", ours
    longest = max(span_seconds(pool.resume_timeout) for pool in pools.values())
    for key in ("prologepilogtimeout", "prologtimeout"):
        value = str(written.get(key, ""))
        if value.isdecimal() and int(value) < longest:
            message = (
                f"is {value} s, and a job waits for its nodes in PrologSlurmctld for up to {longest} s "
                "(resume_timeout); write no less, or leave it out"
            )
            yield f"slurm.settings.{key}", message
    if "idle_on_node_suspend" in str(written.get("slurmctldparameters", "")).lower():
        message = "has idle_on_node_suspend, which lifts the drains of nodes that are powered down; leave it out"
        yield "slurm.settings.SlurmctldParameters", message
    for name, partition in partitions.items():
        for key in sorted(folded(partition.settings).keys() & set(_OF_ELASTIC_POOLS)):
            yield f"partitions.{name}.settings.{key}", ours
        if name.removeprefix(HIDDEN) in pools and name.startswith(HIDDEN):
            yield f"partitions.{name}", "is the name of a partition that we make for the elastic pool"


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
