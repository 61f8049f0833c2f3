"""Kubernetes objects of the local cluster itself: CoreDNS with its rights. Everything else is the user's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from string import Template
from typing import Any

import yaml

from local import paths, versions
from local.addresses import Addresses
from local.configs import CLUSTER_DOMAIN


def system_objects(
    addresses: Addresses, upstream: Sequence[str], hosts: Sequence[tuple[str, Sequence[str]]] = ()
) -> list[dict[str, Any]]:
    """List the objects in the order in which they are applied."""
    corefile = corefile_text(upstream, hosts)
    text = Template((paths.SOURCES / "coredns" / "objects.yaml").read_text(encoding="utf-8")).substitute(
        corefile=json.dumps(corefile),
        digest=hashlib.sha256(corefile.encode()).hexdigest()[:16],
        image=versions.COREDNS_IMAGE,
        address=addresses.dns_service,
    )
    return list(yaml.safe_load_all(text))


def corefile_text(upstream: Sequence[str], hosts: Sequence[tuple[str, Sequence[str]]] = ()) -> str:
    """Write CoreDNS's configuration. Answers live 5 s: a pod that moved is found again soon."""
    lines = [
        ".:53 {",
        "    errors",
        "    health {",
        "        lameduck 2s",
        "    }",
        "    ready",
        f"    kubernetes {CLUSTER_DOMAIN} in-addr.arpa {{",
        "        pods insecure",
        "        fallthrough in-addr.arpa",
        "        ttl 5",
        "    }",
    ]
    if hosts:
        lines += ["    hosts {", "        ttl 60"]
        lines += [f"        {address} {' '.join(names)}" for address, names in hosts]
        lines += ["        fallthrough", "    }"]
    if upstream:
        lines += [f"    forward . {' '.join(upstream)}"]
    lines += ["    cache 30", "    loop", "}"]
    return "\n".join(lines) + "\n"
