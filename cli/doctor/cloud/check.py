"""What follows from a cloud's answers about a stack, before `up`: its region, what is there, quotas, what can be had.

One line each, for people or as JSON.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from nebius.api.nebius.capacity.v1 import ResourceAdvice
from nebius.api.nebius.quotas.v1 import QuotaAllowance
from rich.console import Console
from rich.markup import escape

from cli.access.nebius_sdk import close_sdk, open_sdk
from cli.doctor.cloud.ask import Answers, Unanswered, ask, listed
from config.base import GIBIBYTE, gibibytes
from config.cluster import ClusterConfig
from config.nebius.needs import VOLUME_DISK, disks_of, filesystems_of
from config.nebius.platforms import Preset, nebius_catalogue
from config.sections.cloud import NebiusCloud
from config.sections.machines import BootDisk

LIMIT = 30.0
"""Seconds for all answers together."""

State = Literal["fine", "warning", "change", "unchecked"]

_STYLES: dict[State, tuple[str, str]] = {
    "fine": ("fine", "green"),
    "warning": ("warning", "yellow"),
    "change": ("change", "red bold"),
    "unchecked": ("not checked", "magenta"),
}


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    check: str
    """Name of the check, for example `quotas`."""
    state: State
    """`change`: `up` would fail or hang until something is changed. `unchecked`: the check could not be made."""
    message: str


def print_findings(findings: Sequence[Finding]) -> None:
    """Lines for people, in the order of the checks."""
    console = Console(highlight=False, emoji=False)
    width = max(len(item.check) for item in findings)
    for item in findings:
        word, style = _STYLES[item.state]
        console.print(f"[{style}]{word:11}[/] {item.check:{width}}  {escape(item.message)}", soft_wrap=True)


def diagnose(config: ClusterConfig, cloud: NebiusCloud, *, limit: float = LIMIT) -> list[Finding]:
    """Ask the cloud and compare. Raises Failure without usable credentials."""
    sdk = open_sdk()
    try:
        with Console(stderr=True, highlight=False).status("Asking the cloud"):
            answers = asyncio.run(ask(sdk, cloud, cloud.prefix(config.cluster.namespace), seconds=limit))
    finally:
        close_sdk(sdk)
    if isinstance(answers, Unanswered):
        return [Finding("project", "change", f"{cloud.project_id} cannot be read: {answers.reason}")]
    return list(_findings(answers, config, cloud))


def _findings(answers: Answers, config: ClusterConfig, cloud: NebiusCloud) -> Iterator[Finding]:
    """In the order in which one would put it right."""
    project, region = answers.project, answers.project.spec.region
    description = f"{cloud.project_id} ({project.metadata.name}) in {region}, of {project.metadata.parent_id}"
    if region == cloud.region:
        yield Finding("project", "fine", description)
    else:
        yield Finding("project", "change", f"{description}: cloud.region is {cloud.region}; correct one of them")
    wanted = list(machines_of(config, cloud))
    # What the cloud does not say is not there.
    nodes = [_missing(node, answers, cloud.prefix(config.cluster.namespace)) for node in wanted]
    yield _present(answers, sum(node.count for node in nodes), sum(node.count for node in wanted))
    yield from _quotas(answers, nodes, config, cloud.region)
    # Whether the service has the machines that are still missing. What it says holds for this moment only.
    machines: Counter[Demand] = Counter()
    for node in nodes:
        if node.is_pool and node.size.gpus and node.count:
            machines[_demand(node, config, answers)] += node.count
    for demand, count in machines.items():
        yield _capacity(answers, demand, count, cloud.region)


# Machines


@dataclass(frozen=True, kw_only=True)
class NodeNeed:
    """Machines of one kind: a worker pool's, or those of one of our own roles."""

    name: str
    """Of the pool or the role."""
    is_pool: bool
    platform: str
    preset: str
    size: Preset
    """What one machine has."""
    count: int
    """Machines that the stack runs with: workers as many as `size` says, other roles what they need to begin."""
    most: int
    """Machines that autoscaling may come to; never less than `count`."""
    disk: BootDisk
    """Of one machine."""


def machines_of(config: ClusterConfig, cloud: NebiusCloud) -> Iterator[NodeNeed]:
    """Those of our own roles and of the pools, as far as their platforms and presets are known."""
    logins, catalogue = config.login.size, nebius_catalogue()
    begin = {"system": 1, "controller": 1, "login": min(1, logins)}
    most = {"controller": 1, "login": logins}
    for role, nodes in cloud.roles.items():
        count, limit = max(begin[role], nodes.min_size), min(most.get(role, nodes.max_size), nodes.max_size)
        kind, disk = {"platform": nodes.platform, "preset": nodes.preset}, nodes.boot_disk
        if (size := catalogue.preset(**kind)) is not None:
            yield NodeNeed(name=role, is_pool=False, **kind, size=size, count=count, most=max(count, limit), disk=disk)
    for name, pool in config.worker_nodes.items():
        count = max(pool.least, pool.node_groups * pool.kept_in_group)
        kind, limit = {"platform": str(pool.platform), "preset": str(pool.preset)}, max(count, pool.most)
        if (size := catalogue.preset(**kind)) is not None:
            yield NodeNeed(name=name, is_pool=True, **kind, size=size, count=count, most=limit, disk=pool.boot_disk)


def _present(answers: Answers, left: int, wanted: int) -> Finding:
    """How much is still to be made."""
    if isinstance(answers.groups, Unanswered):
        what = "what is there already (what is not known counts as still to be made)"
        return Finding("present", "unchecked", f"{what}: {answers.groups.reason}")
    if answers.groups is None:
        return Finding("present", "fine", f"nothing yet: {wanted} machines to be made")
    return Finding("present", "fine", f"the cluster; {left} of {wanted} machines are still to be made")


def _missing(node: NodeNeed, answers: Answers, name: str) -> NodeNeed:
    """Without those that are there. Machines of another preset than now wanted do not help."""
    there = 0
    for group in listed(answers.groups or ()):
        made_of = group.spec.template.resources
        same = (made_of.platform, made_of.preset) == (node.platform, node.preset)
        there += group.status.node_count if same and _holds(group.metadata.name, node, name) else 0
    return replace(node, count=max(0, node.count - there), most=max(0, node.most - there))


def _holds(group: str, node: NodeNeed, name: str) -> bool:
    """Whether the node group is one of these machines': `<prefix>-<role>`, or `<prefix>-<pool>-<number>`."""
    if not node.is_pool:
        return group == f"{name}-{node.name}"
    stem, _, number = group.rpartition("-")
    return stem == f"{name}-{node.name}" and number.isdecimal()


# What can be had now


class Demand(NamedTuple):
    """Machines of one kind that come from the same place."""

    platform: str
    preset: str
    fabric: str | None
    """Empty: any. None: that of an existing GPU cluster, which is not known."""
    source: Literal["preemptible", "reserved", "on demand", "reserved or on demand"]

    def fits(self, advice: ResourceAdvice, region: str) -> bool:
        """Whether it is about a place that will do: without a fabric of its own a pool may get machines anywhere."""
        return advice.spec.region == region and self.fabric in {None, "", advice.spec.fabric}


def _demand(node: NodeNeed, config: ClusterConfig, answers: Answers) -> Demand:
    """Where a pool's machines come from."""
    pool = config.worker_nodes[node.name]
    fabric: str | None = ""
    if pool.gpu_cluster is not None:
        known = {item.metadata.id: item.spec.infiniband_fabric for item in listed(answers.gpu_clusters)}
        fabric = pool.gpu_cluster.infiniband_fabric or known.get(pool.gpu_cluster.id or "")
    if pool.preemptible:
        return Demand(node.platform, node.preset, fabric, "preemptible")
    match pool.reservation.policy if pool.reservation is not None else "AUTO":
        case "STRICT":
            return Demand(node.platform, node.preset, fabric, "reserved")
        case "FORBID":
            return Demand(node.platform, node.preset, fabric, "on demand")
        case _:
            return Demand(node.platform, node.preset, fabric, "reserved or on demand")


def _capacity(answers: Answers, demand: Demand, wanted: int, region: str) -> Finding:
    where = f" on {demand.fabric}" if demand.fabric else ""
    subject = f"{wanted} x {demand.platform} {demand.preset}{where}, {demand.source}"
    if isinstance(answers.advice, Unanswered):
        return Finding("capacity", "unchecked", f"{subject}: {answers.advice.reason}")
    if demand.fabric is None:
        why = "the fabric of an existing GPU cluster is not known, so nor is what can be had there"
        return Finding("capacity", "warning", f"{subject}: {why}")
    here: list[int] = []
    for advice in (one for one in _about(answers, demand) if demand.fits(one, region)):
        status = advice.status
        offers = {"preemptible": [status.preemptible], "reserved": [status.reserved], "on demand": [status.on_demand]}
        here.append(sum(offer.available for offer in offers.get(demand.source, [status.reserved, status.on_demand])))
    if not here:
        return Finding("capacity", "warning", f"{subject}: the service names none in {region}, so it may be wrong")
    if sum(here) >= wanted:
        return Finding("capacity", "fine", f"{subject}: {sum(here)} can be had now")
    instead = "make the pool smaller, reserve capacity, or try later (quotas bound this number, too)"
    return Finding("capacity", "change", f"{subject}: only {sum(here)} can be had now; {instead}")


def _about(answers: Answers, demand: Demand) -> list[ResourceAdvice]:
    """What the service says of machines of this kind, wherever they are."""
    kind = (demand.platform, demand.preset)
    asked = [(advice, advice.spec.compute_instance) for advice in listed(answers.advice)]
    return [advice for advice, of in asked if of is not None and (of.platform, of.preset.name) == kind]


# Quotas


def _quotas(answers: Answers, nodes: Sequence[NodeNeed], config: ClusterConfig, region: str) -> Iterator[Finding]:
    """One line for all that suffice, one for each that does not. A tenant's and its project's quotas both bind."""
    quotas: list[tuple[str, QuotaAllowance]] = []
    for whose, answer in (("tenant", answers.tenant_quotas), ("project", answers.project_quotas)):
        if isinstance(answer, Unanswered):
            yield Finding("quotas", "unchecked", f"quotas of the {whose}: {answer.reason}")
        quotas += [(whose, item) for item in listed(answer) if item.spec.region in {region, ""}]
    if isinstance(answers.tenant_quotas, Unanswered):
        return
    # Of a cluster that is there, machines alone are counted.
    is_new = answers.groups is None or isinstance(answers.groups, Unanswered)
    rest = _of_the_rest(config) if is_new else Counter[str]()
    reserved = _reserved(answers, nodes, config, region)
    amount, most = (rest + _of_the_machines(nodes, config, reserved, most=most) for most in (False, True))
    enough: list[str] = []
    unlisted: list[str] = []
    for name in sorted(most):
        found = {whose: item for whose, item in quotas if item.metadata.name == name}
        short = [Finding("quotas", "change", text) for text in _short(name, amount[name], found)]
        autoscaled = [f"{text}, with all machines of autoscaling" for text in _short(name, most[name], found)]
        short += [Finding("quotas", "warning", text) for text in autoscaled]
        yield from short[:1]
        if not short:
            (enough if found else unlisted).append(name)
    if unlisted:
        yield Finding("quotas", "unchecked", f"{', '.join(unlisted)}: no such quota is listed in {region}")
    if enough:
        yield Finding("quotas", "fine", f"enough in {region}: {', '.join(enough)}")


def _reserved(answers: Answers, nodes: Sequence[NodeNeed], config: ClusterConfig, region: str) -> Counter[str]:
    """By quota: GPUs that come out of reservations, which count against none. What one pool takes, no other has."""
    taken: Counter[tuple[str, str, str]] = Counter()
    found: Counter[str] = Counter()
    asked = [(node, _demand(node, config, answers)) for node in nodes if node.is_pool and node.size.gpus]
    for node, demand in sorted(asked, key=lambda one: not one[1].fabric):  # which may have others than those of its own
        machines = node.count if "reserved" in demand.source else 0
        for one in _about(answers, demand):
            there = (demand.platform, demand.preset, one.spec.fabric)
            if demand.fits(one, region):
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
            has = f"the {whose}'s quota has {_amount_text(left, unit)} left of {_amount_text(limit or 0, unit)}"
            yield f"{name}: {_amount_text(wanted, unit)} more needed, and {has}"


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
        pool = config.worker_nodes[node.name] if node.is_pool else None
        machines = node.most if most else node.count
        total["compute.instance.count"] += machines
        total["compute.disk.count"] += machines
        total[f"compute.disk.size.{_slug(node.disk.type)}"] += machines * gibibytes(node.disk.size) * GIBIBYTE
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


def _of_the_rest(config: ClusterConfig) -> Counter[str]:
    """Of a new cluster."""
    disks = disks_of(config)
    total = Counter({"mk8s.cluster.count": 1, "compute.disk.count": len(disks)})
    total[f"compute.disk.size.{_slug(VOLUME_DISK)}"] = sum(disks) * GIBIBYTE
    for item in filesystems_of(config):
        if item.filesystem.id is None:
            total[f"compute.filesystem.size.{_slug(item.filesystem.type)}"] += item.size_gib * GIBIBYTE
    return total


def _slug(kind: str) -> str:
    """`network-ssd` of `NETWORK_SSD`."""
    return kind.lower().replace("_", "-")


def _amount_text(amount: int, unit: str) -> str:
    return f"{amount / GIBIBYTE:.0f} GiB" if unit == "byte" else str(amount)
