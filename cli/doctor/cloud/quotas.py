"""Whether the quotas suffice for all that is still missing of the stack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from nebius.api.nebius.quotas.v1 import QuotaAllowance

from cli.doctor.cloud.answers import Answers, Unanswered, listed
from cli.doctor.cloud.present import Missing
from cli.doctor.cloud.report import Finding, change, fine, unchecked, warning
from config.base import GIBIBYTE
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import NodeNeed


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
            warning("quotas", f"{text}, with all machines of autoscaling and updates")
            for text in _short(name, most[name], found)
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
    """Amounts by quota that the machines begin with, or with `most` may come to by autoscaling and updates.

    The names are those that the service lists (`nebius quotas quota-allowance list`). Machines with GPUs do not count
    against vCPUs, preemptible ones have a quota of their own, and each machine takes two addresses: its own and the
    range of its pods.
    """
    total: Counter[str] = Counter()
    for node in lack.needs.nodes:
        pool = config.worker_nodes.get(node.pool or "")
        machines = node.at_once if most else node.count
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
            "storage.bucket.count": int(lack.new_cluster and cloud.backups.enabled),
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
