"""Whether the quotas suffice for all that is still missing of the stack."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cli.doctor.cloud.answers import Answer, Answers, LivePlatform, Quota, Unanswered
from cli.doctor.cloud.present import Missing
from cli.doctor.cloud.report import Finding, change, fine, unchecked, warning
from config.base import GIBIBYTE
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import NodeNeed

_GPU_PLATFORM = re.compile(r"^gpu-([a-z0-9]+)")

_BYTES = "byte"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An amount of something that is counted against a quota."""

    name: str
    """Name of the quota, for example `compute.instance.gpu.h100`."""
    amount: int
    """What the stack begins with; sizes in bytes."""
    most: int
    """What autoscaling and updates may come to."""


def wanted_quotas(
    lack: Missing,
    config: ClusterConfig,
    cloud: NebiusCloud,
    platforms: Mapping[str, LivePlatform],
    reserved: Mapping[str, int],
) -> list[Wanted]:
    """Amounts by quota. `reserved` has the reserved GPUs that each pool gets: they do not count against GPU quotas.

    The names are those that the service lists (`nebius quotas quota-allowance list`). Machines with GPUs do not count
    against vCPUs, preemptible ones have a quota of their own, and each machine takes two addresses: its own and the
    range of its pods.
    """
    amount: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for node in lack.needs.nodes:
        pool = config.worker_nodes.get(node.pool or "")
        preemptible = pool is not None and pool.preemptible
        for total, machines in ((amount, node.count), (most, node.most + node.surge)):
            total.update(_of_machines(node, machines))
            if preemptible:
                total["compute.instance.preemptible.count"] += machines
            elif node.size.gpus:
                gpus = machines * node.size.gpus - reserved.get(node.pool or "", 0)
                total[gpu_quota(node.platform, platforms)] += max(0, gpus)
            else:
                total["compute.instance.non-gpu.vcpu"] += machines * node.size.vcpus
    once = _of_the_rest(lack, cloud)
    amount.update(once)
    most.update(once)
    return [Wanted(name=name, amount=amount[name], most=most[name]) for name in sorted(most) if most[name]]


def gpu_quota(platform: str, platforms: Mapping[str, LivePlatform]) -> str:
    """The quota that the GPUs of a platform count against: as the service says, else by the platform's name."""
    live = platforms.get(platform)
    if live is not None and live.gpu_quota.startswith("compute."):
        return live.gpu_quota
    match = _GPU_PLATFORM.match(platform)
    return f"compute.instance.gpu.{match.group(1) if match else platform}"


def check_quotas(answers: Answers, wanted: Sequence[Wanted], region: str) -> Iterator[Finding]:
    """One line for all that suffice, one for each that does not. A tenant's and its project's quotas both bind."""
    check = "quotas"
    if isinstance(answers.tenant_quotas, Unanswered) and isinstance(answers.project_quotas, Unanswered):
        yield unchecked(check, "quotas", answers.tenant_quotas)
        return
    rows = {"tenant": _in(answers.tenant_quotas, region), "project": _in(answers.project_quotas, region)}
    enough: list[str] = []
    unlisted: list[str] = []
    for item in wanted:
        listed = {where: quotas[item.name] for where, quotas in rows.items() if item.name in quotas}
        problem = next(_problems(item, listed, region), None)
        if problem is not None:
            yield problem
        elif listed:
            enough.append(item.name)
        else:
            unlisted.append(item.name)
    if isinstance(answers.tenant_quotas, Unanswered):
        yield unchecked(check, "quotas of the tenant", answers.tenant_quotas)
    if isinstance(answers.project_quotas, Unanswered):
        yield unchecked(check, "quotas of the project", answers.project_quotas)
    if unlisted:
        yield unchecked(check, ", ".join(unlisted), Unanswered(reason=f"the service lists no such quota in {region}"))
    if enough:
        yield fine(check, f"enough in {region}: {', '.join(enough)}")


def _problems(item: Wanted, listed: Mapping[str, Quota], region: str) -> Iterator[Finding]:
    for amount, report in ((item.amount, change), (item.most, warning)):
        for where, quota in listed.items():
            if quota.free is not None and quota.free < amount:
                needed = f"{item.name} in {region}: {_told(amount, quota)} more needed"
                if report is warning:
                    needed += " when all machines of autoscaling and updates are there"
                left = f"the {where}'s quota has {_told(quota.free, quota)} left of {_told(quota.limit or 0, quota)}"
                yield report("quotas", f"{needed}, {left}; ask for a larger one, or make the stack smaller")


def _of_machines(node: NodeNeed, machines: int) -> dict[str, int]:
    return {
        "compute.instance.count": machines,
        "compute.disk.count": machines,
        f"compute.disk.size.{_slug(node.disk_type)}": machines * node.disk_gib * GIBIBYTE,
        "vpc.allocation.count": 2 * machines,
    }


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
            "storage.bucket.count": int(lack.new_cluster and cloud.backups.enabled),
        }
    )
    for kind, gib in needs.filesystem_gib.items():
        found[f"compute.filesystem.size.{_slug(kind)}"] += gib * GIBIBYTE
    for kind, gib in needs.volume_gib.items():
        found[f"compute.disk.size.{_slug(kind)}"] += gib * GIBIBYTE
    return found


def _in(quotas: Answer[tuple[Quota, ...]], region: str) -> dict[str, Quota]:
    if isinstance(quotas, Unanswered):
        return {}
    return {quota.name: quota for quota in quotas if quota.region in {region, ""}}


def _slug(kind: str) -> str:
    """`network-ssd` of `NETWORK_SSD`."""
    return kind.lower().replace("_", "-")


def _told(amount: int, quota: Quota) -> str:
    return f"{amount / GIBIBYTE:.0f} GiB" if quota.unit == _BYTES else str(amount)
