"""The host's side of the cluster's network: bridge, cables to the namespaces, routes, and the way out.

Everything is named `slurmstack*` and carries a mark with our directory; what has such a name but not the mark belongs
to somebody else and is not touched.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from local import files, firewall, namespaces, paths
from local.addresses import BRIDGE, Addresses, overlaps
from local.errors import LocalError
from local.shell import run

_CONF = Path("/proc/sys/net/ipv4/conf")
_RECORD = "host.json"
"""What we changed on the host outside our own directories, written down before it is done, so that `down` undoes it."""


def mark() -> str:
    """Give the mark of what is ours: another slurmstack directory is another owner."""
    return f"slurmstack:{paths.root()}"


def check(addresses: Addresses) -> None:
    """Fail, before anything is touched, where our names or ranges are somebody else's."""
    for link in _links():
        name, owner = str(link["ifname"]), str(link.get("ifalias") or "unmarked")
        if name.startswith("slurmstack") and owner != mark():
            msg = f"the network interface {name} exists and is not this cluster's ({owner})"
            raise LocalError(msg, f"take the other cluster down, or if it is left over: ip link del {name}")
    firewall.check(mark())
    found = overlaps(addresses, _routes())
    if found:
        hint = "set SLURMSTACK_NODE_RANGE, SLURMSTACK_POD_RANGE or SLURMSTACK_SERVICE_RANGE to a free range"
        raise LocalError("the host already uses these addresses: " + "; ".join(found), hint)


def mtu() -> int:
    """Give the packet size of the way out, so that pods do not send what cannot leave."""
    return min((_mtu_of(device) for device in _uplinks()), default=1500)


def hardware_address(address: str) -> str:
    """Give the Ethernet address of one of ours: it follows from the IPv4 address and never changes.

    A bridge without one of its own takes the lowest of its ports: each cable plugged in or out could change it, and
    whoever had the old one in its neighbour table lost the way for up to half a minute (measured).
    """
    return "02:00:" + ":".join(f"{byte:02x}" for byte in ip_address(address).packed)


def ensure_host(addresses: Addresses) -> None:
    """Make bridge, firewall table and forwarding."""
    if _link(BRIDGE) is None:
        _ip_batch(
            [
                f"link add name {BRIDGE} address {hardware_address(addresses.host)} mtu {mtu()} type bridge",
                f"link set dev {BRIDGE} alias {mark()}",
                f"addr add {addresses.host}/{addresses.node_prefix} dev {BRIDGE}",
                f"link set dev {BRIDGE} up",
            ]
        )
    for device in (BRIDGE, *_uplinks()):
        switch = _CONF / device / "forwarding"
        before = switch.read_text().strip()
        if before != "1":
            if device != BRIDGE:
                # The first value is the one that is put back.
                record = {"forwarding": {device: before, **_forwarding_before()}}
                files.write_whole(paths.cluster() / _RECORD, json.dumps(record))
            switch.write_text("1")
    firewall.ensure(addresses, mark())


def connect_control(addresses: Addresses, nodes: int) -> None:
    """Plug the control plane's namespace into the bridge; it knows the way to all pods and Services.

    Its own loopback comes up here, as what was interrupted before its cable is done again.
    """
    own = f"{addresses.control_plane}/{addresses.node_prefix}"
    _plug(namespaces.CONTROL, own, addresses.host, ["link set dev lo up", *_cluster_routes(addresses, nodes)])


def connect_node(index: int, addresses: Addresses, nodes: int) -> None:
    """Plug a node into the bridge; it knows the way to the other nodes' pods."""
    others = [
        f"route replace {addresses.pods_of(other)} via {addresses.node(other)}"
        for other in range(nodes)
        if other != index
    ]
    _plug(f"node-{index}", f"{addresses.node(index)}/{addresses.node_prefix}", addresses.host, others)


def is_connected(namespace: str) -> bool:
    """Tell whether the cable is plugged in and everything behind it is set: it is switched on last."""
    link = _link(_cable(namespace))
    return link is not None and link.get("master") == BRIDGE and "UP" in link.get("flags", [])


def disconnect(namespace: str) -> None:
    """Pull the cable, if there is one."""
    if _link(_cable(namespace)) is not None:
        run(["ip", "link", "del", "dev", _cable(namespace)])


def ensure_routes(addresses: Addresses, nodes: int) -> None:
    """Let the host reach pods and Services: a person may open a Service's address directly."""
    _ip_batch(_cluster_routes(addresses, nodes))


def restore_host() -> list[str]:
    """Take away bridge, cables, firewall table and accept rules; put forwarding back; returns what failed."""
    problems = []
    try:
        firewall.remove(mark())
    except LocalError as error:
        # Without `nft` (somebody emptied our cache) the rest can still be done; without a cluster there is no rule.
        if paths.cluster().exists():
            problems.append(f"firewall rules: {error.message}")
    for link in _links():
        name = str(link["ifname"])
        if link.get("ifalias") == mark():
            run(["ip", "link", "del", "dev", name], check=False)
    # Somebody who turned forwarding on for the whole machine meanwhile (docker does) needs it: left on then.
    if Path("/proc/sys/net/ipv4/ip_forward").read_text().strip() == "0":
        for device, before in _forwarding_before().items():
            switch = _CONF / device / "forwarding"
            if switch.exists():
                switch.write_text(before)
    return problems


def _forwarding_before() -> dict[str, str]:
    """How interfaces of the host forwarded before we turned it on."""
    try:
        return dict(json.loads((paths.cluster() / _RECORD).read_text())["forwarding"])
    except (OSError, ValueError, KeyError):
        return {}


def _cluster_routes(addresses: Addresses, nodes: int) -> list[str]:
    routes = [f"route replace {addresses.pods_of(index)} via {addresses.node(index)}" for index in range(nodes)]
    return [*routes, f"route replace {addresses.services} via {addresses.node(0)}"]


def _cable(namespace: str) -> str:
    return "slurmstack-cp" if namespace == namespaces.CONTROL else namespace.replace("node-", "slurmstack-n")


def _plug(namespace: str, address: str, gateway: str, routes: Sequence[str]) -> None:
    """Make a fresh pair: the host's end in the bridge, the other end is the namespace's `eth0`."""
    disconnect(namespace)
    cable, peer = _cable(namespace), namespaces.net_file(namespace)
    own = hardware_address(address.partition("/")[0])
    _ip_batch(
        [
            f"link add name {cable} mtu {mtu()} type veth peer name eth0 address {own} mtu {mtu()} netns {peer}",
            f"link set dev {cable} alias {mark()}",
            f"link set dev {cable} master {BRIDGE}",
        ]
    )
    inside = [f"addr add {address} dev eth0", "link set dev eth0 up", f"route add default via {gateway}", *routes]
    _ip_batch(inside, namespace)
    _ip_batch([f"link set dev {cable} up"])


def _ip_batch(commands: Sequence[str], namespace: str | None = None) -> None:
    if commands:
        inside = namespaces.enter(namespace, with_mounts=False) if namespace else []
        run([*inside, "ip", "-batch", "-"], stdin="\n".join(commands) + "\n")


def _links() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(["ip", "-j", "link", "show"]).stdout or "[]")
    return found


def _link(name: str) -> dict[str, Any] | None:
    return next((link for link in _links() if link["ifname"] == name), None)


def _routes() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(["ip", "-j", "-4", "route", "show"]).stdout or "[]")
    return found


def _uplinks() -> list[str]:
    devices = [str(route["dev"]) for route in _routes() if route.get("dst") == "default" and "dev" in route]
    return list(dict.fromkeys(device for device in devices if (_CONF / device).exists()))


def _mtu_of(device: str) -> int:
    return int(Path(f"/sys/class/net/{device}/mtu").read_text())
