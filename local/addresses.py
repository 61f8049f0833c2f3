"""Address ranges of the local cluster, in one place, and whether the host already uses them.

`SLURMSTACK_RANGE` moves them where they collide.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from local.errors import LocalError

BRIDGE = "slurmstack0"
"""The bridge on the host that joins the nodes, the control plane and the host."""

_VARIABLE, _DEFAULT = "SLURMSTACK_RANGE", "10.197.0.0/16"
_POD_PREFIX = 24
_FIRST_NODE = 10


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """Ranges as text in CIDR form, and everything that follows from them."""

    nodes: str
    pods: str
    services: str

    @property
    def host(self) -> str:
        """Give the bridge's address: the host as the nodes see it."""
        return self._node_address(1)

    @property
    def control_plane(self) -> str:
        """Give the API server's address."""
        return self._node_address(2)

    @property
    def api_url(self) -> str:
        """Give the URL of the API server, reachable from the host and from pods."""
        return f"https://{self.control_plane}:6443"

    @property
    def api_service(self) -> str:
        """Give the address of the Service `kubernetes`: the first of the range, by Kubernetes' own rule."""
        return str(ipaddress.IPv4Network(self.services)[1])

    @property
    def dns_service(self) -> str:
        """Give the address of the cluster's DNS: the tenth by custom."""
        return str(ipaddress.IPv4Network(self.services)[10])

    @property
    def node_prefix(self) -> int:
        """Give the length of the node range's prefix in bits."""
        return ipaddress.IPv4Network(self.nodes).prefixlen

    def node(self, index: int) -> str:
        """Give the address of node number `index`."""
        return self._node_address(_FIRST_NODE + index)

    def pods_of(self, index: int) -> str:
        """Give the pod range of node number `index`."""
        network = ipaddress.IPv4Network(self.pods)
        return str(ipaddress.IPv4Network((int(network[0]) + (index << (32 - _POD_PREFIX)), _POD_PREFIX)))

    def as_json(self) -> dict[str, str]:
        """Give the three ranges, for the record of what a cluster was made with."""
        return asdict(self)

    def _node_address(self, number: int) -> str:
        return str(ipaddress.IPv4Network(self.nodes)[number])


def from_environment(environ: Mapping[str, str] | None = None) -> Addresses:
    """Read the range of which nodes, pods and Services have parts; `LocalError` where it is no usable one."""
    values = os.environ if environ is None else environ
    text = values.get(_VARIABLE) or _DEFAULT
    try:
        network = ipaddress.IPv4Network(text)
    except ValueError as error:
        raise LocalError(f"{_VARIABLE}={text!r} is not an IPv4 range: {error}", f"for example {_DEFAULT}") from error
    if network.prefixlen != 16:
        raise LocalError(f"{_VARIABLE}={text} has another size than /16", f"for example {_DEFAULT}")
    return Addresses(nodes=f"{network[0]}/24", pods=f"{network[64 << 8]}/18", services=f"{network[128 << 8]}/20")


def overlaps(addresses: Addresses, routes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Say which of the host's routes (the entries of `ip -j route`) lie in our ranges, ours left out."""
    ours = [ipaddress.IPv4Network(text) for text in addresses.as_json().values()]
    found: list[str] = []
    for route in routes:
        device = str(route.get("dev", "?"))
        if route["dst"] == "default" or device == BRIDGE:
            continue
        network = ipaddress.IPv4Network(route["dst"])
        found += [f"{mine} overlaps {network} on {device}" for mine in ours if mine.overlaps(network)]
    return found
