"""The nftables side: masquerading of what leaves the cluster, and a way through a firewall that drops what it forwards.

Nobody outside this machine may begin a connection to nodes, pods or Services: their ranges are routed here, and another
machine of the same network needs only a route of its own to reach the kubelets and every pod.

Our table is `ip slurmstack`. An accept in it could not overrule another table's drop (docker sets `FORWARD` to drop):
there, accept rules for our bridge alone are put in front, marked by a comment, and taken out again by `down`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from typing import Any

from local.addresses import BRIDGE, Addresses
from local.errors import LocalError
from local.shell import run

_TABLE = "slurmstack"


def table_text(addresses: Addresses, mark: str) -> str:
    """Write our table; loaded in one transaction, whatever was in it before."""
    return f"""table ip {_TABLE}
delete table ip {_TABLE}
table ip {_TABLE} {{
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    ip saddr {{ {addresses.nodes}, {addresses.pods} }} oifname != "{BRIDGE}" masquerade comment "{mark}"
  }}
  chain forward {{
    type filter hook forward priority filter; policy accept;
    iifname != "{BRIDGE}" oifname "{BRIDGE}" ct state != {{ established, related }} counter drop comment "{mark}"
  }}
}}
"""


def check(mark: str) -> None:
    """Fail where a table of our name exists without our mark."""
    done = _nft(["list", "table", "ip", _TABLE], check=False)
    if done.returncode == 0 and mark not in done.stdout:
        msg = f"the nftables table `ip {_TABLE}` exists and is not this cluster's"
        raise LocalError(msg, f"take the other cluster down, or remove it: nft delete table ip {_TABLE}")


def ensure(addresses: Addresses, mark: str) -> None:
    """Load our table, whatever an earlier release or a person made of it, and open the host's forward chains."""
    _nft(["-f", "-"], stdin=table_text(addresses, mark))
    rules = _ruleset()
    marked = {(rule["family"], rule["table"], rule["chain"]) for rule in _rules(rules) if rule.get("comment") == mark}
    for family, table, chain in closed_forward_chains(rules):
        if (family, table, chain) not in marked:
            for direction in ("iifname", "oifname"):
                rule = [direction, f'"{BRIDGE}"', "counter", "accept", "comment", f'"{mark}"']
                _nft(["insert", "rule", family, table, chain, *rule])


def remove(mark: str) -> None:
    """Remove our accept rules from foreign chains, then our table (if it is ours)."""
    for rule in _rules(_ruleset()):
        if rule.get("comment") == mark and rule["table"] != _TABLE:
            place = [str(rule[key]) for key in ("family", "table", "chain")]
            _nft(["delete", "rule", *place, "handle", str(rule["handle"])], check=False)
    done = _nft(["list", "table", "ip", _TABLE], check=False)
    if done.returncode == 0 and mark in done.stdout:
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


def _rules(ruleset: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
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
