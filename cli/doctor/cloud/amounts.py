"""Whether there is enough for all that is still missing of a stack: quotas, and what can be had now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from nebius.api.nebius.capacity.v1 import ResourceAdvice
from nebius.api.nebius.quotas.v1 import QuotaAllowance

from cli.doctor.cloud.ask import Answers, Unanswered, listed
from cli.doctor.cloud.place import Missing
from cli.doctor.cloud.report import Finding, change, fine, unchecked, warning
from config.base import GIBIBYTE
from config.cluster import ClusterConfig
from config.nebius.needs import Needs, NodeNeed
from config.sections.cloud import NebiusCloud

Source = Literal["preemptible", "reserved", "on demand", "reserved or on demand"]


class Demand(NamedTuple):
    """Machines of one kind that come from the same place."""

    platform: str
    preset: str
    fabric: str
    """Empty: any."""
    source: Source


def check_capacity(
    answers: Answers, nodes: Sequence[NodeNeed], config: ClusterConfig, region: str
) -> Iterator[Finding]:
    """Whether the service has the machines that are still missing. What it says holds for this moment only."""
    wanted: Counter[Demand] = Counter()
    for node in nodes:
        if node.pool is not None and node.size.gpus and node.count:
            wanted[_demand(node, config, answers)] += node.count
    for demand, machines in wanted.items():
        yield _check_demand(answers, demand, machines, region)


def _demand(node: NodeNeed, config: ClusterConfig, answers: Answers) -> Demand:
    """Where a pool's machines come from."""
    pool = config.worker_nodes[str(node.pool)]
    fabric = ""
    if pool.gpu_cluster is not None:
        known = {item.metadata.id: item.spec.infiniband_fabric for item in listed(answers.gpu_clusters)}
        fabric = pool.gpu_cluster.infiniband_fabric or known.get(pool.gpu_cluster.id or "", "")
    policy = pool.reservation.policy if pool.reservation is not None else "AUTO"
    sources: dict[str, Source] = {"STRICT": "reserved", "FORBID": "on demand"}
    source = "preemptible" if pool.preemptible else sources.get(policy, "reserved or on demand")
    return Demand(node.platform, node.preset, fabric, source)


def _check_demand(answers: Answers, demand: Demand, wanted: int, region: str) -> Finding:
    where = f" on {demand.fabric}" if demand.fabric else ""
    subject = f"{wanted} x {demand.platform} {demand.preset}{where}, {demand.source}"
    if isinstance(answers.advice, Unanswered):
        return unchecked("capacity", subject, answers.advice)
    here: list[int] = []
    for advice in (one for one in _about(answers, demand) if _fits(one, demand, region)):
        status = advice.status
        offers = {"preemptible": [status.preemptible], "reserved": [status.reserved], "on demand": [status.on_demand]}
        here.append(sum(offer.available for offer in offers.get(demand.source, [status.reserved, status.on_demand])))
    if not here:
        return warning("capacity", f"{subject}: the service names none in {region}, so it may be wrong")
    if sum(here) >= wanted:
        return fine("capacity", f"{subject}: {sum(here)} can be had now")
    instead = "make the pool smaller, reserve capacity, or try later (quotas bound this number, too)"
    return change("capacity", f"{subject}: only {sum(here)} can be had now; {instead}")


def _about(answers: Answers, demand: Demand) -> list[ResourceAdvice]:
    """What the service says of machines of this kind, wherever they are."""
    kind = (demand.platform, demand.preset)
    asked = [(advice, advice.spec.compute_instance) for advice in listed(answers.advice)]
    return [advice for advice, of in asked if of is not None and (of.platform, of.preset.name) == kind]


def _fits(advice: ResourceAdvice, demand: Demand, region: str) -> bool:
    """Whether it is about a place that will do: without a fabric of its own a pool may get machines anywhere."""
    return advice.spec.region == region and demand.fabric in {"", advice.spec.fabric}


def check_quotas(
    answers: Answers, lack: Missing, needs: Needs, config: ClusterConfig, cloud: NebiusCloud
) -> Iterator[Finding]:
    """One line for all that suffice, one for each that does not. A tenant's and its project's quotas both bind."""
    quotas: list[tuple[str, QuotaAllowance]] = []
    for whose, answer in (("tenant", answers.tenant_quotas), ("project", answers.project_quotas)):
        if isinstance(answer, Unanswered):
            yield unchecked("quotas", f"quotas of the {whose}", answer)
        quotas += [(whose, item) for item in listed(answer) if item.spec.region in {cloud.region, ""}]
    if isinstance(answers.tenant_quotas, Unanswered):
        return
    reserved = _reserved(answers, lack.nodes, config, cloud.region)
    amount, most = (
        _of_the_rest(lack, needs) + _of_the_machines(lack.nodes, config, reserved, most=most) for most in (False, True)
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


def _reserved(answers: Answers, nodes: Sequence[NodeNeed], config: ClusterConfig, region: str) -> Counter[str]:
    """By quota: GPUs that come out of reservations, which count against none. What one pool takes, no other has."""
    taken: Counter[tuple[str, str, str]] = Counter()
    found: Counter[str] = Counter()
    asked = [(node, _demand(node, config, answers)) for node in nodes if node.pool is not None and node.size.gpus]
    for node, demand in sorted(asked, key=lambda one: not one[1].fabric):  # which may have others than those of its own
        machines = node.count if "reserved" in demand.source else 0
        for one in _about(answers, demand):
            there = (demand.platform, demand.preset, one.spec.fabric)
            if _fits(one, demand, region):
                more = min(machines, one.status.reserved.available - taken[there])
                taken[there] += more
                machines -= more
                found[_gpu_quota(node)] += more * node.size.gpus
    return found


def _short(name: str, wanted: int, quotas: Mapping[str, QuotaAllowance]) -> Iterator[str]:
    """Each quota that has not so much left. One without a limit binds nothing."""
    for whose, quota in quotas.items():
        limit, unit = quota.spec.limit, quota.status.unit
        left = max(0, limit - quota.status.usage) if limit is not None else wanted
        if left < wanted:
            has = f"the {whose}'s quota has {_told(left, unit)} left of {_told(limit or 0, unit)}"
            yield f"{name}: {_told(wanted, unit)} more needed, and {has}"


def _of_the_machines(
    nodes: Sequence[NodeNeed], config: ClusterConfig, reserved: Mapping[str, int], *, most: bool
) -> Counter[str]:
    """Amounts by quota that the machines begin with, or with `most` may come to by autoscaling.

    The names are those that the service lists (`nebius quotas quota-allowance list`). Machines with GPUs do not count
    against vCPUs, preemptible ones have a quota of their own, and each machine takes two addresses: its own and the
    range of its pods.
    """
    total: Counter[str] = Counter()
    for node in nodes:
        pool = config.worker_nodes.get(node.pool or "")
        machines = node.most if most else node.count
        total["compute.instance.count"] += machines
        total["compute.disk.count"] += machines
        total[f"compute.disk.size.{_slug(node.disk_type)}"] += machines * node.disk_gib * GIBIBYTE
        total["vpc.allocation.count"] += 2 * machines
        if pool is not None and pool.preemptible:
            total["compute.instance.preemptible.count"] += machines
        elif node.size.gpus:
            total[_gpu_quota(node)] += machines * node.size.gpus
        else:
            total["compute.instance.non-gpu.vcpu"] += machines * node.size.vcpus
    total.subtract(reserved)
    return total


def _gpu_quota(node: NodeNeed) -> str:
    """The quota of the machines' GPUs: `compute.instance.gpu.h100` for `gpu-h100-sxm`."""
    return f"compute.instance.gpu.{node.platform.split('-')[1]}"


def _of_the_rest(lack: Missing, needs: Needs) -> Counter[str]:
    """Of a new cluster."""
    if not lack.new_cluster:
        return Counter()
    own = [item for item in needs.filesystems if item.filesystem.id is None]
    disks = {f"compute.disk.size.{_slug(kind)}": gib * GIBIBYTE for kind, gib in needs.volume_gib.items()}
    shared = {f"compute.filesystem.size.{_slug(kind)}": gib * GIBIBYTE for kind, gib in needs.filesystem_gib.items()}
    return Counter({
        "compute.gpucluster.count": len(needs.fabrics),
        "compute.filesystem.count": len(own),
        "compute.disk.count": len(needs.volume_gib),
        "mk8s.cluster.count": 1,
        **disks,
        **shared,
    })  # fmt: skip


def _slug(kind: str) -> str:
    """`network-ssd` of `NETWORK_SSD`."""
    return kind.lower().replace("_", "-")


def _told(amount: int, unit: str) -> str:
    return f"{amount / GIBIBYTE:.0f} GiB" if unit == "byte" else str(amount)
