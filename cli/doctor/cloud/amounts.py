"""Whether there is enough for all that is still missing of a stack: quotas, reservations, and what can be had now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from nebius.api.nebius.capacity.v1 import CapacityBlockGroup, ResourceAdvice, ResourceAdviceStatus__Availability
from nebius.api.nebius.quotas.v1 import QuotaAllowance

from cli.doctor.cloud.ask import Answers, Unanswered, listed
from cli.doctor.cloud.place import Missing
from cli.doctor.cloud.report import Finding, change, fine, unchecked, warning
from config.base import GIBIBYTE
from config.cluster import ClusterConfig
from config.nebius.needs import Needs, NodeNeed
from config.sections.cloud import NebiusCloud
from config.sections.workers import WorkerPool

Source = Literal["preemptible", "reserved", "on demand", "reserved or on demand"]


class Demand(NamedTuple):
    """Machines of one kind that come from the same place."""

    platform: str
    preset: str
    fabric: str
    """Empty: any."""
    source: Source


def check_capacity(answers: Answers, needs: Needs, config: ClusterConfig, region: str) -> Iterator[Finding]:
    """Whether the service has the machines that are still missing. What it says holds for this moment only."""
    wanted: Counter[Demand] = Counter()
    for node in needs.nodes:
        if node.pool is not None and node.size.gpus and node.count:
            source = _source(config.worker_nodes[node.pool])
            wanted[Demand(node.platform, node.preset, _fabric(node, config, answers), source)] += node.count
    for demand, machines in wanted.items():
        yield _check_demand(answers, demand, machines, region)


def _fabric(node: NodeNeed, config: ClusterConfig, answers: Answers) -> str:
    """The InfiniBand fabric that a pool's machines must be on; empty: any."""
    wanted = config.worker_nodes[str(node.pool)].gpu_cluster
    if wanted is None:
        return ""
    known = {item.metadata.id: item.spec.infiniband_fabric for item in listed(answers.gpu_clusters)}
    return wanted.infiniband_fabric or known.get(wanted.id or "", "")


def _source(pool: WorkerPool) -> Source:
    if pool.preemptible:
        return "preemptible"
    policy = pool.reservation.policy if pool.reservation is not None else "AUTO"
    sources: dict[str, Source] = {"STRICT": "reserved", "FORBID": "on demand"}
    return sources.get(policy, "reserved or on demand")


def _check_demand(answers: Answers, demand: Demand, wanted: int, region: str) -> Finding:
    where = f" on {demand.fabric}" if demand.fabric else ""
    subject = f"{wanted} x {demand.platform} {demand.preset}{where}, {demand.source}"
    if isinstance(answers.advice, Unanswered):
        return unchecked("capacity", subject, answers.advice)
    found: list[ResourceAdviceStatus__Availability] = []
    elsewhere: dict[str, int] = {}
    for advice in answers.advice:
        kind = advice.spec.compute_instance
        if kind is None or (kind.platform, kind.preset.name) != (demand.platform, demand.preset):
            continue
        offers = _offers(advice, demand.source)
        # Without a fabric of its own a pool may get machines anywhere, with one only there.
        if advice.spec.region == region and demand.fabric in {"", advice.spec.fabric}:
            found += offers
        else:
            place = f"{advice.spec.fabric or 'no fabric'} in {advice.spec.region}"
            elsewhere[place] = elsewhere.get(place, 0) + sum(offer.available for offer in offers)
    enough = ", ".join(sorted(place for place, machines in elsewhere.items() if machines >= wanted))
    instead = f"there is enough on {enough}" if enough else "make the pool smaller, reserve capacity, or try later"
    sure = sum(offer.available for offer in found if offer.data_state.name == "DATA_STATE_FRESH")
    perhaps = sum(offer.available for offer in found)
    if not found:
        return warning("capacity", f"{subject}: the service names none in {region}, so it may be wrong; {instead}")
    if sure >= wanted:
        return fine("capacity", f"{subject}: {sure} can be had now")
    if perhaps >= wanted:
        return warning("capacity", f"{subject}: {perhaps} could be had, by numbers that are out of date")
    return change("capacity", f"{subject}: only {perhaps} can be had now; {instead} (quotas bound this number, too)")


def _offers(advice: ResourceAdvice, source: Source) -> list[ResourceAdviceStatus__Availability]:
    status = advice.status
    by_source = {
        "preemptible": [status.preemptible],
        "reserved": [status.reserved],
        "on demand": [status.on_demand],
        "reserved or on demand": [status.reserved, status.on_demand],
    }
    return by_source[source]


def reserved_gpus(
    needs: Needs, config: ClusterConfig, cloud: NebiusCloud, blocks: Sequence[CapacityBlockGroup]
) -> dict[str, int]:
    """Reserved GPUs that each pool gets for its machines, by pool. What one pool takes, the next cannot have."""
    left = {block.metadata.id: max(0, block.status.current_limit - block.status.usage) for block in blocks}
    found: dict[str, int] = {}
    for node in needs.nodes:
        if node.pool is None:
            continue
        wanted = node.count * node.size.gpus
        for block in blocks:
            if _may_use(node, block, config) and not _misfit(node, block, config, cloud):
                taken = min(left[block.metadata.id], wanted - found.get(node.pool, 0))
                left[block.metadata.id] -= taken
                found[node.pool] = found.get(node.pool, 0) + taken
    return found


def _may_use(node: NodeNeed, block: CapacityBlockGroup, config: ClusterConfig) -> bool:
    """Whether the pool's settings allow the reservation."""
    pool = config.worker_nodes[str(node.pool)]
    if pool.preemptible or pool.reservation is None:
        return not pool.preemptible
    return pool.reservation.policy != "FORBID" and block.metadata.id in (pool.reservation.ids or [block.metadata.id])


def _misfit(node: NodeNeed, block: CapacityBlockGroup, config: ClusterConfig, cloud: NebiusCloud) -> str:
    """What makes a reservation of no use for these machines; empty: nothing."""
    status, affinity = block.status, block.status.resource_affinity.compute_v1
    pool = config.worker_nodes[str(node.pool)]
    fabric = pool.gpu_cluster.infiniband_fabric if pool.gpu_cluster is not None else None
    if affinity is None or (status.region, affinity.platform) != (cloud.region, node.platform):
        return f"is for {affinity.platform if affinity else 'other things'} in {status.region}"
    if fabric is not None and affinity.fabric != fabric:
        return f"is on {affinity.fabric}; set gpu_cluster.infiniband_fabric to it"
    return "" if status.state.name == "STATE_ACTIVE" else "is not active now"


def check_reservations(
    answers: Answers, needs: Needs, config: ClusterConfig, cloud: NebiusCloud, reserved: Mapping[str, int]
) -> Iterator[Finding]:
    """Whether the reservations that pools name are there, fit, and have enough."""
    for node in needs.nodes:
        pool = config.worker_nodes.get(node.pool or "")
        if pool is None or pool.reservation is None or pool.reservation.policy == "FORBID":
            continue
        if isinstance(answers.blocks, Unanswered):
            yield unchecked("reservation", f"reservations of {node.where}", answers.blocks)
            continue
        known = {block.metadata.id: block for block in answers.blocks}
        for id_ in pool.reservation.ids:
            misfit = _misfit(node, known[id_], config, cloud) if id_ in known else "is not in this tenant"
            if misfit:
                yield change("reservation", f"{node.where}: reservation {id_} {misfit}")
        wanted, there = node.count * node.size.gpus, reserved.get(str(node.pool), 0)
        told = f"{node.where}: {wanted} more GPUs needed, reservations have {there} for them"
        if there >= wanted:
            yield fine("reservation", told)
        elif pool.reservation.policy == "STRICT":
            yield change("reservation", f"{told}, and policy STRICT takes no others")
        else:
            yield warning("reservation", f"{told}; the rest comes out of other capacity")


def check_quotas(
    answers: Answers, lack: Missing, config: ClusterConfig, cloud: NebiusCloud, reserved: Mapping[str, int]
) -> Iterator[Finding]:
    """One line for all that suffice, one for each that does not. A tenant's and its project's quotas both bind.

    `reserved` has the reserved GPUs that each pool gets: they do not count against GPU quotas.
    """
    quotas: list[tuple[str, QuotaAllowance]] = []
    for whose, answer in (("tenant", answers.tenant_quotas), ("project", answers.project_quotas)):
        if isinstance(answer, Unanswered):
            yield unchecked("quotas", f"quotas of the {whose}", answer)
        quotas += [(whose, item) for item in listed(answer) if item.spec.region in {cloud.region, ""}]
    if isinstance(answers.tenant_quotas, Unanswered):
        return
    gpu_quotas = {item.metadata.name: item.spec.gpu_count_quota_type for item in listed(answers.platforms)}
    amount, most = (
        _of_the_rest(lack, cloud) + _of_the_machines(lack, config, gpu_quotas, reserved, most=most)
        for most in (False, True)
    )
    enough: list[str] = []
    unlisted: list[str] = []
    for name in sorted(most):
        found = {whose: item for whose, item in quotas if item.metadata.name == name}
        short = [change("quotas", text) for text in _short(name, amount[name], found)]
        short += [
            warning("quotas", f"{text}, with all machines of autoscaling") for text in _short(name, most[name], found)
        ]
        yield from short[:1]
        if not short:
            (enough if found else unlisted).append(name)
    if unlisted:
        yield unchecked("quotas", ", ".join(unlisted), Unanswered(reason=f"no such quota is listed in {cloud.region}"))
    if enough:
        yield fine("quotas", f"enough in {cloud.region}: {', '.join(enough)}")


def _short(name: str, wanted: int, quotas: Mapping[str, QuotaAllowance]) -> Iterator[str]:
    """Each quota that has not so much left. One without a limit binds nothing."""
    for whose, quota in quotas.items():
        limit, unit = quota.spec.limit, quota.status.unit
        left = max(0, limit - quota.status.usage) if limit is not None else wanted
        if left < wanted:
            has = f"the {whose}'s quota has {_told(left, unit)} left of {_told(limit or 0, unit)}"
            yield f"{name}: {_told(wanted, unit)} more needed, and {has}"


def _of_the_machines(
    lack: Missing, config: ClusterConfig, gpu_quotas: Mapping[str, str], reserved: Mapping[str, int], *, most: bool
) -> Counter[str]:
    """Amounts by quota that the machines begin with, or with `most` may come to by autoscaling.

    The names are those that the service lists (`nebius quotas quota-allowance list`). Machines with GPUs do not count
    against vCPUs, preemptible ones have a quota of their own, and each machine takes two addresses: its own and the
    range of its pods.
    """
    total: Counter[str] = Counter()
    for node in lack.needs.nodes:
        pool = config.worker_nodes.get(node.pool or "")
        machines = node.most if most else node.count
        total["compute.instance.count"] += machines
        total["compute.disk.count"] += machines
        total[f"compute.disk.size.{_slug(node.disk_type)}"] += machines * node.disk_gib * GIBIBYTE
        total["vpc.allocation.count"] += 2 * machines
        if pool is not None and pool.preemptible:
            total["compute.instance.preemptible.count"] += machines
        elif node.size.gpus:
            gpus = machines * node.size.gpus - reserved.get(node.pool or "", 0)
            total[_gpu_quota(node, gpu_quotas)] += max(0, gpus)
        else:
            total["compute.instance.non-gpu.vcpu"] += machines * node.size.vcpus
    return total


def _gpu_quota(node: NodeNeed, gpu_quotas: Mapping[str, str]) -> str:
    """The quota of the machines' GPUs: as the service says, else by the platform's name."""
    said = gpu_quotas.get(node.platform, "")
    return said if said.startswith("compute.") else f"compute.instance.gpu.{node.platform.split('-')[1]}"


def _of_the_rest(lack: Missing, cloud: NebiusCloud) -> Counter[str]:
    needs = lack.needs
    own_network = int(lack.new_cluster and cloud.subnet_id is None)
    found = Counter(
        {
            "compute.gpucluster.count": len(needs.fabrics),
            "compute.filesystem.count": lack.new_filesystems,
            "compute.disk.count": len(needs.volume_gib),
            "mk8s.cluster.count": int(lack.new_cluster),
            "vpc.allocation.count": needs.load_balancers,
            "vpc.ipv4-address.public.count": needs.public_addresses,
            "vpc.network.count": own_network,
            "vpc.subnet.count": own_network,
        }
    )
    found.update(
        {f"compute.filesystem.size.{_slug(kind)}": gib * GIBIBYTE for kind, gib in needs.filesystem_gib.items()}
    )
    found.update({f"compute.disk.size.{_slug(kind)}": gib * GIBIBYTE for kind, gib in needs.volume_gib.items()})
    return found


def _slug(kind: str) -> str:
    """`network-ssd` of `NETWORK_SSD`."""
    return kind.lower().replace("_", "-")


def _told(amount: int, unit: str) -> str:
    return f"{amount / GIBIBYTE:.0f} GiB" if unit == "byte" else str(amount)
