"""Whether the machines, their pods and the Services find addresses in the subnet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Network, ip_network

from cli.doctor.cloud.answers import Answer, Answers, Subnet, Unanswered
from cli.doctor.cloud.present import Missing
from cli.doctor.cloud.report import Finding, change, fine, unchecked, warning
from config.nebius.cloud import NebiusCloud
from config.nebius.needs import Needs

SERVICE_PREFIX = 16
"""Range of Services that a cluster without `service_cidr` takes out of the subnet (API: "empty means /16")."""


def check_subnet(answers: Answers, cloud: NebiusCloud, lack: Missing) -> Finding:
    """Whether what is still missing of the stack fits into what is free of the subnet.

    Ranges must be aligned, so it is not the sum that counts: largest ranges first, each from the smallest that fits.
    """
    check = "subnet"
    if cloud.subnet_id is None:
        return fine(check, "a network and a subnet of our own are made")
    subnet = answers.subnet
    if isinstance(subnet, Unanswered):
        if subnet.missing:
            missing = f"there is no subnet {cloud.subnet_id}; correct cloud.subnet_id, or remove it for a new one"
            return change(check, missing)
        return unchecked(check, cloud.subnet_id, subnet)
    services = _service_blocks(cloud) if lack.new_cluster else {}
    return next(_problems(subnet, answers.taken, cloud, lack.needs, services))


def _problems(
    subnet: Subnet, taken: Answer[tuple[str, ...]], cloud: NebiusCloud, needs: Needs, services: Mapping[int, int]
) -> Iterator[Finding]:
    check = "subnet"
    if subnet.project != cloud.project_id:
        yield change(check, f"{cloud.subnet_id} is in {subnet.project}, not in {cloud.project_id}; correct one of them")
    if not subnet.ready:
        yield change(check, f"{cloud.subnet_id} is not ready; wait until it is")
    if not subnet.cidrs:
        yield unchecked(check, str(cloud.subnet_id), Unanswered(reason="the service names no private address ranges"))
    wanted = blocks(needs, services, count="count")
    free = free_blocks(map(IPv4Network, subnet.cidrs), [] if isinstance(taken, Unanswered) else taken)
    told = f"{cloud.subnet_id} ({', '.join(subnet.cidrs)})"
    amount = f"{_addresses(wanted)} more (pods {needs.pod_addresses}, machines {needs.machines}"
    amount += f", Services {_addresses(services)})" if services else ")"
    if not fits(wanted, free):
        message = f"{told} has {_addresses(free)} free addresses, not enough for {amount}"
        yield change(check, f"{message}; {_advice(needs, services, free)}")
    if isinstance(taken, Unanswered):
        yield warning(check, f"{told} is large enough for {amount}, if nothing is taken yet: {taken.reason}")
    if not fits(blocks(needs, services, count="most"), free):
        yield warning(check, f"{told} is enough for {amount}, but not for all that updates and autoscaling may add")
    yield fine(check, f"{told} has {_addresses(free)} free addresses for {amount}")


def blocks(needs: Needs, services: Mapping[int, int], *, count: str) -> Counter[int]:
    """How many ranges of each prefix length are wanted. `count`: `count`, or `most` with autoscaling and updates."""
    wanted: Counter[int] = Counter(services)
    for node in needs.nodes:
        machines = node.count if count == "count" else node.most + node.surge
        wanted[33 - node.addresses.bit_length()] += machines
        wanted[32] += machines
    return wanted


def free_blocks(cidrs: Iterable[IPv4Network], taken: Iterable[str]) -> Counter[int]:
    """What is left of the ranges without those that are taken, as aligned ranges by prefix length."""
    free = list(cidrs)
    for text in taken:
        gone = ip_network(text, strict=False)
        if not isinstance(gone, IPv4Network):
            continue
        rest: list[IPv4Network] = []
        for network in free:
            if gone.supernet_of(network):
                continue
            rest += network.address_exclude(gone) if network.supernet_of(gone) else [network]
        free = rest
    return Counter(network.prefixlen for network in free)


def fits(wanted: Mapping[int, int], free: Mapping[int, int]) -> bool:
    """Whether aligned ranges can be cut out of the free ones. A range of one prefix length is two of the next."""
    left = 0
    for prefix in range(33):
        left = 2 * left + free.get(prefix, 0) - wanted.get(prefix, 0)
        if left < 0:
            return False
    return True


def _service_blocks(cloud: NebiusCloud) -> dict[int, int]:
    cidr = cloud.kubernetes.service_cidr
    return {ip_network(cidr).prefixlen if cidr else SERVICE_PREFIX: 1}


def _advice(needs: Needs, services: Mapping[int, int], free: Mapping[int, int]) -> str:
    if services and fits(blocks(needs, {}, count="count"), free):
        prefix = next(iter(services))
        return f"the Services' range alone takes a /{prefix}: set cloud.kubernetes.service_cidr to a smaller one"
    return "take a larger subnet, or set max_pods of the pools lower"


def _addresses(found: Mapping[int, int]) -> int:
    return sum(number << (32 - prefix) for prefix, number in found.items())
