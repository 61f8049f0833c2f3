"""The host's side of the cluster's network: bridge, cables to the namespaces, routes, and the way out.

Everything is named `slurmstack*` and carries a mark with our directory; what has such a name but not the mark belongs
to somebody else and is not touched.

Nobody outside this machine may begin a connection to nodes, pods or Services: their ranges are routed here, and another
machine of the same network needs only a route of its own to reach the kubelets and every pod.

Our nftables table is `ip slurmstack`. An accept in it could not overrule another table's drop (docker sets `FORWARD` to
drop): there, accept rules for our bridge alone are put in front, marked by a comment, and taken out again by `down`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from local import files, namespaces, paths
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
    _check_table()
    found = overlaps(addresses, _routes())
    if found:
        hint = "SLURMSTACK_RANGE=10.N.0.0/16 chooses others for a new cluster; `down` comes before, if there is one"
        raise LocalError("the host already uses these addresses: " + "; ".join(found), hint)


def mtu() -> int:
    """Give the packet size of the way out, so that pods do not send what cannot leave."""
    return min((int(Path(f"/sys/class/net/{device}/mtu").read_text()) for device in _uplinks()), default=1500)


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
    _ensure_table(addresses)


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
        _remove_rules()
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


_TABLE = "slurmstack"


def table_text(addresses: Addresses) -> str:
    """Write our table; loaded in one transaction, whatever was in it before."""
    return f"""table ip {_TABLE}
delete table ip {_TABLE}
table ip {_TABLE} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {{ {addresses.nodes}, {addresses.pods} }} oifname != "{BRIDGE}" masquerade comment "{mark()}"
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname != "{BRIDGE}" oifname "{BRIDGE}" ct state != {{ established, related }} counter drop comment "{mark()}"
  }}
}}
"""


def _check_table() -> None:
    """Fail where a table of our name exists without our mark."""
    done = _nft(["list", "table", "ip", _TABLE], check=False)
    if done.returncode == 0 and mark() not in done.stdout:
        msg = f"the nftables table `ip {_TABLE}` exists and is not this cluster's"
        raise LocalError(msg, f"take the other cluster down, or remove it: nft delete table ip {_TABLE}")


def _ensure_table(addresses: Addresses) -> None:
    """Load our table, whatever an earlier release or a person made of it, and open the host's forward chains."""
    _nft(["-f", "-"], stdin=table_text(addresses))
    rules = _ruleset()
    ours = [rule for rule in _rules_of(rules) if rule.get("comment") == mark()]
    marked = {(rule["family"], rule["table"], rule["chain"]) for rule in ours}
    for family, table, chain in closed_forward_chains(rules):
        if (family, table, chain) not in marked:
            for direction in ("iifname", "oifname"):
                rule = [direction, f'"{BRIDGE}"', "counter", "accept", "comment", f'"{mark()}"']
                _nft(["insert", "rule", family, table, chain, *rule])


def _remove_rules() -> None:
    """Remove our accept rules from foreign chains, then our table (if it is ours)."""
    for rule in _rules_of(_ruleset()):
        if rule.get("comment") == mark() and rule["table"] != _TABLE:
            place = [str(rule[key]) for key in ("family", "table", "chain")]
            _nft(["delete", "rule", *place, "handle", str(rule["handle"])], check=False)
    done = _nft(["list", "table", "ip", _TABLE], check=False)
    if done.returncode == 0 and mark() in done.stdout:
        _nft(["delete", "table", "ip", _TABLE])


def closed_forward_chains(ruleset: Iterable[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """Pick the base chains of others at the forward hook that drop what they do not know."""
    chains = [entry["chain"] for entry in ruleset if "chain" in entry]
    return [
        (chain["family"], chain["table"], chain["name"])
        for chain in chains
        if chain.get("hook") == "forward"
        and chain.get("type") == "filter"
        and chain["family"] in {"ip", "inet"}
        and chain["table"] != _TABLE
        and (chain.get("policy") == "drop" or chain["table"] == "firewalld")
    ]


def _rules_of(ruleset: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [entry["rule"] for entry in ruleset if "rule" in entry]


def _ruleset() -> list[dict[str, Any]]:
    done = _nft(["-j", "-a", "list", "ruleset"], check=False)
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["nftables"]
    except (ValueError, KeyError):
        # Some rules of iptables have no JSON form in this nft: without the list there is nothing to open.
        return []
    return found


def _nft(arguments: Sequence[str], *, check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return run(["nft", *arguments], check=check, stdin=stdin)
