"""Whether the machines, their pods and the Services find addresses in the subnet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from ipaddress import IPv4Network, ip_network

from cli.doctor.cloud.answers import Answers, Unanswered, listed
from cli.doctor.cloud.present import Missing
from cli.doctor.cloud.report import Finding, change, fine, unchecked, warning
from config.nebius.cloud import NebiusCloud

SERVICE_PREFIX = 16
"""Range of Services that a cluster without `service_cidr` takes out of the subnet (API: "empty means /16")."""


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
