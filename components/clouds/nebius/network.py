"""The network: a subnet where the stack file names none, and the address of the login Service."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
import pulumi_nebius as nebius

from components.clouds.nebius.scope import CloudScope
from config.nebius.needs import is_internal

ALLOCATION_ANNOTATION = "nebius.com/load-balancer-allocation-id"
"""Gives a Service of type LoadBalancer an address that outlives it (README of the Kubernetes recipes in
nebius/nebius-solutions-library)."""


def create_subnet(scope: CloudScope) -> nebius.VpcV1Subnet:
    """A network of our own, and in it one subnet that takes its addresses from the network's pools."""
    network = nebius.VpcV1Network(
        scope.name("network"),
        name=scope.name("network"),
        parent_id=scope.project,
        labels=scope.labels,
        opts=scope.options,
    )
    return nebius.VpcV1Subnet(
        scope.name("subnet"),
        name=scope.name("subnet"),
        parent_id=scope.project,
        network_id=network.id,
        ipv4_private_pools={"use_network_pools": True},
        ipv4_public_pools={"use_network_pools": True},
        labels=scope.labels,
        opts=scope.options,
    )


def create_login_address(
    scope: CloudScope, subnet_id: pulumi.Input[str], annotations: Mapping[str, str]
) -> nebius.VpcV1Allocation:
    """An address for the login Service, so that users keep it when the Service is made anew.

    Private where the Service's annotations ask for an internal load balancer, else public.
    """
    internal = is_internal(annotations)
    return nebius.VpcV1Allocation(
        scope.name("login"),
        name=scope.name("login"),
        parent_id=scope.project,
        ipv4_private={"subnet_id": subnet_id} if internal else None,
        ipv4_public=None if internal else {"subnet_id": subnet_id},
        labels=scope.labels,
        opts=scope.options,
    )


def address_of(allocation: nebius.VpcV1Allocation) -> pulumi.Output[str]:
    """The address without its mask: `203.0.113.7`."""
    return allocation.status.details.allocated_cidr.apply(lambda cidr: str(cidr).partition("/")[0])
