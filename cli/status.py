"""What runs, at one glance."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.agent import configuration_state
from cli.health.present import printable
from cli.kubectl import Kubectl, slurm
from config.cluster import ClusterConfig
from slurm.conf import config_hash, render
from slurm.names import REST, REST_PORT


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One pod."""

    name: str
    phase: str
    ready: bool
    restarts: int
    node: str


@dataclass(frozen=True, kw_only=True)
class SlurmNode:
    """One Slurm node as `sinfo` has it."""

    name: str
    state: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Status:
    """The state of a cluster."""

    namespace: str
    pods: tuple[Pod, ...]
    nodes: tuple[SlurmNode, ...]
    configuration: str
    """`active`, `pending`, `rejected: ...`, `other than the stack file`, or `unknown`."""
    login_address: str | None
    rest_address: str | None
    """None without a REST API."""
    healthy: bool


_FINE = ("active", "unknown")
"""A configuration that is in force, or that nobody can ask about: a network policy may keep the API server from it."""


def read_status(kubectl: Kubectl, config: ClusterConfig) -> Status:
    """Ask Kubernetes and Slurm. What does not answer is shown as missing, not raised."""
    namespace = config.cluster.namespace
    with ThreadPoolExecutor() as pool:  # each is a process or two that mostly waits
        found = pool.submit(kubectl.items, "pod", "-n", namespace)
        asked = pool.submit(_nodes, kubectl, namespace)
        answered = pool.submit(_configuration, kubectl, config)
        login = pool.submit(login_address, kubectl, namespace)
        rest = pool.submit(rest_address, kubectl, namespace) if config.rest.enabled else None
    nodes, configuration = asked.result(), answered.result()
    pods = tuple(
        pod_of(item)
        for item in found.result()
        if not any(owner["kind"] == "Job" for owner in item["metadata"].get("ownerReferences", []))
    )
    wanted = sum(pool.size for pool in config.worker_nodes.values())
    usable = sum(not _down(node.state) or node.state.startswith("drain") for node in nodes)
    return Status(
        namespace=namespace,
        pods=pods,
        nodes=nodes,
        configuration=configuration,
        login_address=login.result(),
        rest_address=rest.result() if rest else None,
        healthy=bool(pods) and all(pod.ready for pod in pods) and usable >= wanted and configuration in _FINE,
    )


def login_address(kubectl: Kubectl, namespace: str) -> str | None:
    """Address of the login Service."""
    return _address(kubectl, namespace, "login")


def rest_address(kubectl: Kubectl, namespace: str) -> str | None:
    """Where the REST API is."""
    address = _address(kubectl, namespace, REST)
    return f"https://{address}:{REST_PORT}" if address else None


def _address(kubectl: Kubectl, namespace: str, service: str) -> str | None:
    """Address of a Service: its load balancer's where it has one, else the cluster IP."""
    found = kubectl.items("service", service, "-n", namespace)
    if not found:
        return None
    for ingress in found[0].get("status", {}).get("loadBalancer", {}).get("ingress", []):
        return str(ingress.get("ip") or ingress.get("hostname"))
    return str(found[0]["spec"]["clusterIP"])


def host_public_key(kubectl: Kubectl, namespace: str) -> str | None:
    """The SSH host key of the login nodes as in `known_hosts`, from the cluster itself."""
    found = kubectl.items("secret", "ssh-host-keys", "-n", namespace)
    if not found:
        return None
    key = load_pem_private_key(base64.b64decode(found[0]["data"]["ssh_host_ed25519_key"]), None)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def pod_of(item: dict[str, Any]) -> Pod:
    """A pod as Kubernetes has it."""
    status = item.get("status", {})
    containers = status.get("containerStatuses", [])
    leaving = "deletionTimestamp" in item["metadata"]
    return Pod(
        name=item["metadata"]["name"],
        phase="Leaving" if leaving else status.get("phase", "Unknown"),
        ready=bool(containers) and all(container["ready"] for container in containers),
        restarts=sum(container["restartCount"] for container in containers),
        node=item["spec"].get("nodeName", ""),
    )


def _nodes(kubectl: Kubectl, namespace: str) -> tuple[SlurmNode, ...]:
    printed = slurm(kubectl, namespace, "sinfo", "--Node", "--noheader", "--format=%N|%T|%E")
    rows = sorted({tuple(line.split("|", 2)) for line in printed.splitlines() if line.count("|") >= 2})
    return tuple(
        SlurmNode(name=name, state=state, reason="" if reason == "none" else reason) for name, state, reason in rows
    )


def _down(state: str) -> bool:
    return state.startswith(("down", "drain", "fail", "unknown", "future")) or state.endswith("*")


def _configuration(kubectl: Kubectl, config: ClusterConfig) -> str:
    state = configuration_state(kubectl, config.cluster.namespace)
    if state is None:
        return "unknown"
    wanted = config_hash(render(config))
    if state.get("active") == wanted:
        return "active"
    rejected = state.get("rejected")
    if rejected:
        return f"rejected: {rejected['message']}"
    return "pending" if state.get("pending") else "other than the stack file"


def print_status(status: Status) -> None:
    """Tables for people. Names and reasons come from outside and are no markup."""
    console = Console(highlight=False, emoji=False, markup=False)
    if not status.pods:
        console.print(f"nothing runs in namespace {status.namespace}")
        return
    pods = Table("POD", "STATE", "READY", "RESTARTS", "ON", box=None, pad_edge=False)
    for pod in status.pods:
        ready = Text("yes") if pod.ready else Text("no", style="red")
        pods.add_row(Text(pod.name), Text(pod.phase), ready, str(pod.restarts), Text(pod.node))
    console.print(pods)
    nodes = Table("SLURM NODE", "STATE", "REASON", box=None, pad_edge=False)
    for node in status.nodes:
        nodes.add_row(
            Text(node.name), Text(node.state, style="red" if _down(node.state) else ""), Text(printable(node.reason))
        )
    console.print()
    console.print(nodes if status.nodes else "slurmctld does not answer, or has no nodes")
    console.print()
    console.print(f"configuration: {status.configuration}")
    console.print(f"login address: {status.login_address or 'none'}")
    if status.rest_address:
        console.print(f"REST API: {status.rest_address}")
