"""Whether the GPU machines can be had now, reserved or otherwise, and whether the fabric is right for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from cli.doctor.cloud.answers import Advice, Answers, Availability, CapacityBlock, LiveGpuCluster, Unanswered
from cli.doctor.cloud.report import Finding, change, fine, unchecked, warning
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import Needs, NodeNeed

Source = Literal["preemptible", "reserved", "on demand", "reserved or on demand"]


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Machines of one preset that come from the same place."""

    platform: str
    preset: str
    fabric: str | None
    """None: any."""
    source: Source
    machines: int
    pools: tuple[str, ...]


def demands(needs: Needs, config: ClusterConfig, gpu_clusters: Mapping[str, str]) -> list[Demand]:
    """GPU machines that are still missing; pools that take from the same place are added up.

    `gpu_clusters` has the fabric of existing GPU clusters by id, as far as known.
    """
    found: dict[tuple[str, str, str | None, Source], list[NodeNeed]] = {}
    for node in needs.nodes:
        if node.pool is not None and node.size.gpus and node.count:
            pool = config.worker_nodes[node.pool]
            fabric = None
            if pool.gpu_cluster is not None:
                fabric = pool.gpu_cluster.infiniband_fabric or gpu_clusters.get(pool.gpu_cluster.id or "")
            found.setdefault((node.platform, node.preset, fabric, _source(config, node.pool)), []).append(node)
    return [
        Demand(
            platform=platform,
            preset=preset,
            fabric=fabric,
            source=source,
            machines=sum(node.count for node in nodes),
            pools=tuple(str(node.pool) for node in nodes),
        )
        for (platform, preset, fabric, source), nodes in found.items()
    ]


def check_capacity(answers: Answers, wanted: Sequence[Demand], region: str) -> Iterator[Finding]:
    """Whether the service has the machines. What it says holds for this moment only."""
    for demand in wanted:
        yield _check_demand(answers, demand, region)


def _check_demand(answers: Answers, demand: Demand, region: str) -> Finding:
    check = "capacity"
    where = f" on {demand.fabric}" if demand.fabric else ""
    subject = f"{demand.machines} x {demand.platform} {demand.preset}{where}, {demand.source}"
    if isinstance(answers.advice, Unanswered):
        return unchecked(check, subject, answers.advice)
    rows = [
        advice
        for advice in answers.advice
        if (advice.region, advice.platform, advice.preset) == (region, demand.platform, demand.preset)
        and demand.fabric in {None, advice.fabric}
    ]
    if not rows:
        return unchecked(check, subject, Unanswered(reason=f"the service gives no advice for this in {region}"))
    # Without a fabric of its own a pool may get machines anywhere, with one only there.
    found = [availability for advice in rows for availability in _availabilities(advice, demand.source)]
    sure = sum(availability.machines for availability in found if availability.fresh)
    perhaps = sum(availability.machines for availability in found)
    if sure >= demand.machines:
        return fine(check, f"{subject}: {sure} can be had now")
    if perhaps >= demand.machines:
        return warning(check, f"{subject}: {perhaps} could be had, by numbers that are out of date")
    if not any(availability.fresh for availability in found):
        return unchecked(check, subject, Unanswered(reason="the service's numbers are out of date"))
    return change(check, f"{subject}: only {perhaps} can be had now; {_elsewhere(answers.advice, demand, region)}")


def _elsewhere(advice: Sequence[Advice], demand: Demand, region: str) -> str:
    """What else could be done, from the same answers."""
    others = sorted(
        f"{item.fabric or 'no fabric'} in {item.region}"
        for item in advice
        if (item.platform, item.preset) == (demand.platform, demand.preset)
        and (item.region, item.fabric) != (region, demand.fabric)
        and sum(found.machines for found in _availabilities(item, demand.source)) >= demand.machines
    )
    if others:
        return f"there is enough on {', '.join(others)}"
    return "make the pool smaller, reserve capacity, or try later (quotas bound this number too)"


def reserved_gpus(
    needs: Needs, config: ClusterConfig, cloud: NebiusCloud, blocks: Sequence[CapacityBlock]
) -> dict[str, int]:
    """Reserved GPUs that each pool gets for its machines, by pool. What one pool takes, the next cannot have."""
    left = {block.id: block.free for block in blocks}
    found: dict[str, int] = {}
    for node in needs.nodes:
        if node.pool is None:
            continue
        wanted = node.count * node.size.gpus
        for block in _matching_blocks(node, config, cloud, blocks):
            taken = min(left[block.id], wanted - found.get(node.pool, 0))
            left[block.id] -= taken
            found[node.pool] = found.get(node.pool, 0) + taken
    return found


def _matching_blocks(
    node: NodeNeed, config: ClusterConfig, cloud: NebiusCloud, blocks: Sequence[CapacityBlock]
) -> list[CapacityBlock]:
    """Reservations that these machines may and can use."""
    pool = config.worker_nodes[str(node.pool)]
    if pool.preemptible or (pool.reservation is not None and pool.reservation.policy == "FORBID"):
        return []
    ids = pool.reservation.ids if pool.reservation is not None else ()
    fabric = pool.gpu_cluster.infiniband_fabric if pool.gpu_cluster is not None else None
    return [
        block
        for block in blocks
        if block.active
        and (block.region, block.platform) == (cloud.region, node.platform)
        and (not ids or block.id in ids)
        and fabric in {None, block.fabric}
    ]


def check_reservations(answers: Answers, needs: Needs, config: ClusterConfig, cloud: NebiusCloud) -> Iterator[Finding]:
    """Whether the reservations that pools name are there, fit, and have enough."""
    check = "reservation"
    for node in needs.nodes:
        pool = config.worker_nodes.get(node.pool or "")
        if pool is None or pool.reservation is None or pool.reservation.policy == "FORBID":
            continue
        if isinstance(answers.blocks, Unanswered):
            yield unchecked(check, f"reservations of {node.where}", answers.blocks)
            continue
        problems = [
            change(check, f"{node.where}: reservation {block_id} {problem}")
            for block_id in pool.reservation.ids
            if (problem := _misfit(block_id, node, config, cloud, answers.blocks))
        ]
        yield from problems
        if not problems:
            free = reserved_gpus(needs, config, cloud, answers.blocks).get(str(node.pool), 0)
            yield _enough_reserved(node, free, strict=pool.reservation.policy == "STRICT")


def _enough_reserved(node: NodeNeed, free: int, *, strict: bool) -> Finding:
    wanted = node.count * node.size.gpus
    told = f"{node.where}: {wanted} more GPUs needed, reservations have {free} for them"
    if free >= wanted:
        return fine("reservation", told)
    if strict:
        return change("reservation", f"{told}, and policy STRICT takes no others; use AUTO, or make the pool smaller")
    return warning("reservation", f"{told}; the rest comes out of other capacity")


def _misfit(
    block_id: str, node: NodeNeed, config: ClusterConfig, cloud: NebiusCloud, blocks: Sequence[CapacityBlock]
) -> str:
    """What is wrong with a reservation for these machines; empty: nothing."""
    block = next((block for block in blocks if block.id == block_id), None)
    if block is None:
        return "is not in this tenant; correct its id"
    pool = config.worker_nodes[str(node.pool)]
    fabric = pool.gpu_cluster.infiniband_fabric if pool.gpu_cluster is not None else None
    if block.region != cloud.region:
        return f"is in {block.region}, not in {cloud.region}"
    if block.platform != node.platform:
        return f"is for {block.platform}, not for {node.platform}"
    if fabric and block.fabric and block.fabric != fabric:
        return f"is on {block.fabric}; set gpu_cluster.infiniband_fabric to it"
    return "" if block.active else "is not active now"


def check_fabrics(answers: Answers, needs: Needs, cloud: NebiusCloud) -> Iterator[Finding]:
    """Whether each fabric is one of the region, and for the platform, as far as the service says."""
    wanted = dict(needs.fabrics)
    for cluster_id, platforms in needs.gpu_clusters.items():
        cluster = answers.gpu_clusters[cluster_id]
        if isinstance(cluster, LiveGpuCluster):
            wanted[cluster.fabric] = tuple(dict.fromkeys((*wanted.get(cluster.fabric, ()), *platforms)))
    known = _known_fabrics(answers)
    for fabric, platforms in wanted.items():
        for platform in platforms:
            yield _check_fabric(fabric, platform, cloud.region, known, answers)


def _check_fabric(
    fabric: str, platform: str, region: str, known: set[tuple[str, str, str]], answers: Answers
) -> Finding:
    check = "fabric"
    here = sorted({name for place, name, kind in known if (place, kind) == (region, platform)})
    instead = f"fabrics of {platform} in {region}: {', '.join(here)}" if here else f"none is known for {platform}"
    regions = sorted({place for place, name, _ in known if name == fabric})
    kinds = sorted({kind for place, name, kind in known if (place, name) == (region, fabric)})
    if platform in kinds:
        return fine(check, f"{fabric} in {region} is for {platform}")
    if kinds:
        return change(check, f"{fabric} in {region} is for {', '.join(kinds)}, not for {platform}; {instead}")
    if regions:
        return change(check, f"{fabric} is in {', '.join(regions)}, not in {region}; {instead}")
    for answer in (answers.advice, answers.blocks):
        if isinstance(answer, Unanswered) and not known:
            return unchecked(check, f"{fabric} for {platform}", answer)
    return warning(
        check, f"{fabric} for {platform}: the service does not name this fabric, so it may be wrong; {instead}"
    )


def _known_fabrics(answers: Answers) -> set[tuple[str, str, str]]:
    """Region, fabric and platform of everything that the service names."""
    advice = () if isinstance(answers.advice, Unanswered) else answers.advice
    blocks = () if isinstance(answers.blocks, Unanswered) else answers.blocks
    named: tuple[Advice | CapacityBlock, ...] = (*advice, *blocks)
    return {(item.region, item.fabric, item.platform) for item in named if item.fabric}


def _source(config: ClusterConfig, pool_name: str) -> Source:
    pool = config.worker_nodes[pool_name]
    if pool.preemptible:
        return "preemptible"
    policy = pool.reservation.policy if pool.reservation is not None else "AUTO"
    sources: dict[str, Source] = {"STRICT": "reserved", "FORBID": "on demand"}
    return sources.get(policy, "reserved or on demand")


def _availabilities(advice: Advice, source: Source) -> tuple[Availability, ...]:
    by_source = {
        "preemptible": (advice.preemptible,),
        "reserved": (advice.reserved,),
        "on demand": (advice.on_demand,),
        "reserved or on demand": (advice.reserved, advice.on_demand),
    }
    return by_source[source]
