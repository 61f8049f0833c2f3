"""What of a stack is there already, and whether project, machines and subnet take what is still missing of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Network, ip_network

from nebius.api.nebius.compute.v1 import Platform
from nebius.api.nebius.iam.v2 import Project

from cli.doctor.cloud.ask import Answer, Answers, Unanswered, listed
from cli.doctor.cloud.report import Finding, change, fine, unchecked, warning
from config.base import GIBIBYTE
from config.cluster import ClusterConfig
from config.errors import nearest
from config.nebius.needs import Needs, NodeNeed
from config.sections.cloud import NebiusCloud

SERVICE_PREFIX = 16
"""Range of Services that a cluster without `service_cidr` takes out of the subnet (API: "empty means /16")."""


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What the next `up` adds."""

    needs: Needs
    """Without what is there. Machines of another preset than now wanted do not help."""
    new_cluster: bool
    new_filesystems: int
    """File systems to make; others may only grow."""


def missing(needs: Needs, answers: Answers, name: str) -> Missing:
    """What is not there yet of a stack whose names begin with `name`. What the cloud does not say is not there."""
    new_cluster = answers.groups is None or isinstance(answers.groups, Unanswered)
    clusters = [item for item in listed(answers.gpu_clusters) if item.metadata.name.startswith(name)]
    fabrics = {item.spec.infiniband_fabric for item in clusters}
    sizes = {item.metadata.name: item.status.size_bytes // GIBIBYTE for item in listed(answers.filesystems)}
    own = [item for item in needs.filesystems if item.existing_id is None]
    there = {item.tag: sizes.get(f"{name}-{item.tag}") for item in own}
    return Missing(
        needs=replace(
            needs,
            nodes=tuple(_missing_nodes(node, answers, name) for node in needs.nodes),
            filesystems=tuple(
                replace(item, size_gib=max(0, item.size_gib - (there[item.tag] or 0))) if item in own else item
                for item in needs.filesystems
            ),
            volume_gib=needs.volume_gib if new_cluster else {},
            fabrics={fabric: pools for fabric, pools in needs.fabrics.items() if fabric not in fabrics},
            load_balancers=needs.load_balancers if new_cluster else 0,
            public_addresses=needs.public_addresses if new_cluster else 0,
        ),
        new_cluster=new_cluster,
        new_filesystems=sum(size is None for size in there.values()),
    )


def check_present(answers: Answers, lack: Missing, needs: Needs) -> Finding:
    """How much is still to be made."""
    for answer in (answers.groups, answers.filesystems, answers.gpu_clusters):
        if isinstance(answer, Unanswered):
            return unchecked("present", "what is there already (what is not known counts as still to be made)", answer)
    if lack.new_cluster:
        return fine("present", f"nothing yet: {needs.machines} machines to be made")
    return fine("present", f"the cluster; {lack.needs.machines} of {needs.machines} machines are still to be made")


def _missing_nodes(node: NodeNeed, answers: Answers, name: str) -> NodeNeed:
    there = 0
    for group in listed(answers.groups or ()):
        made_of = group.spec.template.resources
        same = (made_of.platform, made_of.preset) == (node.platform, node.preset)
        there += group.status.node_count if same and _holds(group.metadata.name, node, name) else 0
    return replace(node, count=max(0, node.count - there), most=max(0, node.most - there))


def _holds(group: str, node: NodeNeed, name: str) -> bool:
    """Whether the node group is one of these machines': `<prefix>-<role>`, or `<prefix>-<pool>-<number>`."""
    if node.pool is None:
        return group == f"{name}-{node.role}"
    stem, _, number = group.rpartition("-")
    return stem == f"{name}-{node.pool}" and number.isdecimal()


def check_project(project: Project, cloud: NebiusCloud) -> Finding:
    """Whether the project is usable and in the region of the stack."""
    region, state = project.spec.region, project.status.project_state.name
    told = f"{cloud.project_id} ({project.metadata.name}) in {region}, of {project.metadata.parent_id}"
    if region != cloud.region:
        return change("project", f"{told}: cloud.region is {cloud.region}; correct one of them")
    if state not in {"ACTIVE", "STATE_UNSPECIFIED"}:
        return change("project", f"{told}: it is {state.lower()}; wait until it is active, or use another project")
    return fine("project", told)


def check_machines(platforms: Answer[tuple[Platform, ...]], config: ClusterConfig, needs: Needs) -> Iterator[Finding]:
    """Whether each kind and size of machine is offered there."""
    if isinstance(platforms, Unanswered):
        yield unchecked("machines", "platforms and presets", platforms)
        return
    by_name = {platform.metadata.name: platform for platform in platforms}
    problems = [problem for node in needs.nodes if (problem := _problem(node, by_name, config))]
    yield from (change("machines", problem) for problem in problems)
    if not problems:
        kinds = sorted({f"{node.platform} {node.preset}" for node in needs.nodes})
        yield fine("machines", f"offered: {', '.join(kinds)}")


def _problem(node: NodeNeed, platforms: dict[str, Platform], config: ClusterConfig) -> str:
    """What is wrong with the machines of one kind; empty: nothing."""
    platform = platforms.get(node.platform)
    if platform is None:
        return f"{node.where}: this project has no platform {node.platform}; {_instead(node.platform, platforms)}"
    presets = {preset.name: preset.resources for preset in platform.spec.presets}
    live = presets.get(node.preset)
    if live is None:
        return f"{node.where}: {node.platform} has no preset {node.preset}; {_instead(node.preset, presets)}"
    size = node.size
    if (live.vcpu_count, live.memory_gibibytes, live.gpu_count) != (size.vcpus, size.memory_gib, size.gpus):
        return (
            f"{node.where}: {node.preset} has {live.vcpu_count} vCPUs, {live.memory_gibibytes} GiB and "
            f"{live.gpu_count} GPUs, and config/nebius/platforms.yaml says otherwise; correct it there"
        )
    pool = config.worker_nodes.get(node.pool or "")
    if pool is not None and pool.preemptible and not platform.status.allowed_for_preemptibles:
        return f"{node.where}: {node.platform} is not offered preemptible; remove preemptible"
    return ""


def _instead(name: str, known: Iterable[str]) -> str:
    guess = nearest(name, known)
    offered = ", ".join(sorted(known)) or "none"
    return f"did you mean {guess}? (offered: {offered})" if guess else f"offered: {offered}"


def check_subnet(answers: Answers, cloud: NebiusCloud, lack: Missing) -> Finding:
    """Whether what is still missing of the stack fits into what is free of the subnet.

    Ranges must be aligned, so it is not the sum that counts: largest ranges first, each from the smallest that fits.
    """
    subnet = answers.subnet
    if subnet is None:
        return fine("subnet", "a network and a subnet of our own are made")
    if isinstance(subnet, Unanswered):
        if subnet.missing:
            return change("subnet", f"there is no subnet {cloud.subnet_id}; correct cloud.subnet_id")
        return unchecked("subnet", str(cloud.subnet_id), subnet)
    wanted: Counter[int] = Counter()  # ranges by prefix length
    for node in lack.needs.nodes:
        wanted[33 - node.addresses.bit_length()] += node.count
        wanted[32] += node.count
    if lack.new_cluster:
        cidr = cloud.kubernetes.service_cidr
        wanted[ip_network(cidr).prefixlen if cidr else SERVICE_PREFIX] += 1
    cidrs = [cidr for pool in subnet.status.ipv4_private_pools for cidr in pool.cidrs]
    free = _free(cidrs, [str(item.status.details.allocated_cidr) for item in listed(answers.taken)])
    told = f"{cloud.subnet_id} ({', '.join(cidrs)}) has {_addresses(free)} free addresses for {_addresses(wanted)} more"
    if not _fits(wanted, free):
        advice = "take a larger subnet, set max_pods of the pools lower, or cloud.kubernetes.service_cidr to less than "
        return change("subnet", f"{told}, which do not fit; {advice}a /{SERVICE_PREFIX}")
    if isinstance(answers.taken, Unanswered):
        return warning("subnet", f"{told}, if nothing is taken yet: {answers.taken.reason}")
    return fine("subnet", told)


def _free(cidrs: list[str], taken: list[str]) -> Counter[int]:
    """What is left of the ranges without those that are taken, as aligned ranges by prefix length."""
    free = [IPv4Network(cidr) for cidr in cidrs]
    for text in filter(None, taken):
        gone = ip_network(text, strict=False)
        if not isinstance(gone, IPv4Network):
            continue
        rest: list[IPv4Network] = []
        for network in free:
            if not gone.supernet_of(network):
                rest += network.address_exclude(gone) if network.supernet_of(gone) else [network]
        free = rest
    return Counter(network.prefixlen for network in free)


def _fits(wanted: Mapping[int, int], free: Mapping[int, int]) -> bool:
    """Whether aligned ranges can be cut out of the free ones. A range of one prefix length is two of the next."""
    left = 0
    for prefix in range(33):
        left = 2 * left + free.get(prefix, 0) - wanted.get(prefix, 0)
        if left < 0:
            return False
    return True


def _addresses(ranges: Mapping[int, int]) -> int:
    return sum(number << (32 - prefix) for prefix, number in ranges.items())
