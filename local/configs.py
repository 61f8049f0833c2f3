"""Configuration files and command lines of the Kubernetes components, and the cluster's own objects: CoreDNS.

They are in templates/, as people write them elsewhere; here is what is filled in, from the addresses.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Any

import yaml

from local import paths
from local.addresses import Addresses
from local.build import COREDNS_IMAGE, PAUSE_IMAGE
from local.processes import node_cgroup

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
"""In the node's mount namespace, whose `/run` is its own."""


def _filled(template: str, **values: object) -> str:
    return Template((paths.SOURCES / "templates" / template).read_text(encoding="utf-8")).substitute(values)


def flags(component: str, addresses: Addresses, *, node: int = 0) -> list[str]:
    """Give a component's flags; `node`: the number of that which a kubelet or kube-proxy is of."""
    text = (paths.SOURCES / "templates/flags.yaml").read_text(encoding="utf-8")
    values = {
        "pki": paths.pki(),
        "data": paths.cluster() / "etcd",
        "control_plane": addresses.control_plane,
        "services": addresses.services,
        "name": f"node-{node}",
        "directory": paths.node(f"node-{node}"),
        "address": addresses.node(node),
    }
    return [Template(flag).substitute(values) for flag in yaml.safe_load(text)[component]]


def node_files(addresses: Addresses, node: int, *, plugins: Path, mtu: int) -> dict[str, str]:
    """Give the configuration files of a node's daemons, by their names in its directory.

    The pods' network is a cable from each pod straight to the node, no bridge in it: there, two pods of one node would
    answer each other past the node's address translation (unless the host has br_netfilter loaded), and a Service would
    not work between them. Addresses are kept in the node's own /run: after a crash none stays taken by a pod that is
    gone.
    """
    name = f"node-{node}"
    values = {
        "pki": paths.pki(),
        "name": name,
        "directory": paths.node(name),
        "socket": CONTAINERD_SOCKET,
        "cgroup": node_cgroup(name),
        "dns": addresses.dns_service,
        "pods": addresses.pods,
        "own_pods": addresses.pods_of(node),
        "pause": PAUSE_IMAGE,
        "plugins": plugins,
        "mtu": mtu,
    }
    files = {file: _filled(file, **values) for file in ("containerd.toml", "kubelet.yaml", "kube-proxy.yaml")}
    return {**files, "net.d/10-slurmstack.conflist": _filled("cni.conflist", **values)}


def upstream_dns(*resolv_confs: str) -> list[str]:
    """Pick name servers that a pod can reach: a loopback address (systemd-resolved) is the host's alone."""
    for text in resolv_confs:
        servers = re.findall(r"^\s*nameserver\s+(\S+)", text, re.MULTILINE)
        usable = [server for server in servers if not re.match(r"127\.|::1$|0\.0\.0\.0$|.*%", server)]
        if usable:
            return usable[:3]
    return []


def host_names(hosts: str) -> list[tuple[str, list[str]]]:
    """Pick the entries of `/etc/hosts` that mean something in a pod too: what is not loopback and not link-local."""
    rows = [line.partition("#")[0].split() for line in hosts.splitlines()]
    return [(row[0], row[1:]) for row in rows if len(row) > 1 and re.match(r"(?!127\.|169\.254\.)\d+\.", row[0])]


def system_objects(
    addresses: Addresses, upstream: Sequence[str], hosts: Sequence[tuple[str, Sequence[str]]] = ()
) -> list[dict[str, Any]]:
    """List the objects in the order in which they are applied."""
    corefile = corefile_text(upstream, hosts)
    text = _filled(
        "coredns.yaml",
        corefile=json.dumps(corefile),
        digest=hashlib.sha256(corefile.encode()).hexdigest()[:16],
        image=COREDNS_IMAGE,
        address=addresses.dns_service,
    )
    return list(yaml.safe_load_all(text))


def corefile_text(upstream: Sequence[str], hosts: Sequence[tuple[str, Sequence[str]]] = ()) -> str:
    """Write CoreDNS's configuration. Answers live 5 s: a pod that moved is found again soon."""
    rows = "".join(f"        {address} {' '.join(names)}\n" for address, names in hosts)
    return _filled(
        "Corefile",
        hosts=f"    hosts {{\n        ttl 60\n{rows}        fallthrough\n    }}\n" if hosts else "",
        forward=f"    forward . {' '.join(upstream)}\n" if upstream else "",
    )
