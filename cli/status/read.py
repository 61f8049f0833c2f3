"""What runs: asked of Kubernetes and of Slurm, and whether it is whole."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from cli.access.addresses import login_address, rest_address
from cli.kubectl.client import ANSWER_SECONDS, ASK_SLURMDBD, Kubectl, complaint, in_controller
from cli.safety.changed import POOL_LABEL
from cli.status.configuration import describe_configuration
from config.cluster import ClusterConfig
from slurm.names import CONFINEMENT, node_name


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
    confinement: str = ""
    """To what its jobs are held, as the node says; empty if it says nothing."""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The workers of the stack file, of all pools together."""

    ready: int
    """Those that run and do not leave."""
    wanted: int
    fewer: tuple[str, ...] = ()
    """Pools of which the cluster itself was told to have less, or which it does not have."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """The state of a cluster."""

    namespace: str
    pods: tuple[Pod, ...]
    workers: Workers
    nodes: tuple[SlurmNode, ...]
    slurmctld: str
    """Why slurmctld does not answer; empty if it does."""
    slurmdbd_answers: bool | None
    """None where nobody can tell: there is no accounting, or slurmctld does not answer."""
    configuration: str
    """`active`, `active (a later one was rejected: ...)`, `pending`, `rejected: ...`, `other than the stack file`, or
    `unknown`."""
    login_address: str | None
    rest_address: str | None
    """None without a REST API."""
    healthy: bool


_SINFO = ("sinfo", "--Node", "--noheader", "--Format=NodeHost:|,StateLong:|,Reason:|,Extra:")

_SILENT = "slurmdbd is silent\n"

_WITH_SLURMDBD = f"""{ASK_SLURMDBD} & "$@"; code=$?; wait $! || echo '{_SILENT.strip()}'; exit $code"""
"""Both at the same time: neither makes the other wait."""

LEAVING = "Leaving"
"""Phase of a pod that was deleted and has not ended yet."""

_FINE = ("active", "unknown")
"""A configuration that is in force, or that nobody can ask about: a network policy may keep the API server from it."""


def read_status(kubectl: Kubectl, config: ClusterConfig) -> Status:
    """Ask Kubernetes and Slurm. What does not answer is shown as missing, not raised."""
    namespace = config.cluster.namespace
    with ThreadPoolExecutor() as pool:  # each is a process or two that mostly waits
        found = pool.submit(kubectl.items, "pod,statefulset", "-n", namespace)
        asked = pool.submit(_nodes, kubectl, namespace, accounting=config.accounting.enabled)
        answered = pool.submit(describe_configuration, kubectl, config)
        login = pool.submit(login_address, kubectl, namespace)
        rest = pool.submit(rest_address, kubectl, namespace) if config.rest.enabled else None
    (nodes, slurmctld, slurmdbd_answers), configuration = asked.result(), answered.result()
    items = [item for item in found.result() if item["kind"] == "Pod" and _owner(item) != "Job"]
    pods = tuple(pod_of(item) for item in items)
    sets = [item for item in found.result() if item["kind"] == "StatefulSet"]
    workers = _workers(config, pods, sets)
    usable = sum(not is_down(node.state) or node.state.startswith("drain") for node in nodes)
    # A pool's leaving node may wait for jobs for days, and is none of those that are counted.
    whole = all(pod.ready and (pod.phase != LEAVING or _may_leave(item)) for item, pod in zip(items, pods, strict=True))
    slurm_fine = not slurmctld and slurmdbd_answers is not False and usable >= workers.wanted and configuration in _FINE
    return Status(
        namespace=namespace,
        pods=pods,
        workers=workers,
        nodes=nodes,
        slurmctld=slurmctld,
        slurmdbd_answers=slurmdbd_answers,
        configuration=configuration,
        login_address=login.result(),
        rest_address=rest.result() if rest else None,
        healthy=bool(pods) and whole and not missing_workers(workers) and slurm_fine,
    )


def _owner(item: dict[str, Any]) -> str:
    """Kind of what has made a pod; empty if nobody knows."""
    return next((str(owner["kind"]) for owner in item["metadata"].get("ownerReferences", [])), "")


def _may_leave(item: dict[str, Any]) -> bool:
    """Whether a pod that leaves can have another one in its place already, or is a worker, which is counted."""
    return _owner(item) != "StatefulSet" or POOL_LABEL in item["metadata"].get("labels", {})


def _workers(config: ClusterConfig, pods: Iterable[Pod], sets: Iterable[dict[str, Any]]) -> Workers:
    wanted = {name: pool.size for name, pool in config.worker_nodes.items()}
    nodes = {node_name(name, number) for name, size in wanted.items() for number in range(size)}
    told = {
        item["metadata"]["name"]: int(item["spec"].get("replicas", 1))
        for item in sets
        if "deletionTimestamp" not in item["metadata"]
    }
    return Workers(
        ready=sum(pod.name in nodes and pod.ready and pod.phase != LEAVING for pod in pods),
        wanted=len(nodes),
        fewer=tuple(name for name, size in wanted.items() if told.get(name, 0) < size),
    )


def pod_of(item: dict[str, Any]) -> Pod:
    """A pod as Kubernetes has it."""
    status = item.get("status", {})
    containers = status.get("containerStatuses", [])
    leaving = "deletionTimestamp" in item["metadata"]
    return Pod(
        name=item["metadata"]["name"],
        phase=LEAVING if leaving else status.get("phase", "Unknown"),
        ready=bool(containers) and all(container["ready"] for container in containers),
        restarts=sum(container["restartCount"] for container in containers),
        node=item["spec"].get("nodeName", ""),
    )


def _nodes(kubectl: Kubectl, namespace: str, *, accounting: bool) -> tuple[tuple[SlurmNode, ...], str, bool | None]:
    """The nodes, why slurmctld does not answer if it does not, and whether slurmdbd does, asked in the same call."""
    script = _WITH_SLURMDBD if accounting else 'exec "$@"'
    done = in_controller(kubectl, namespace, "sh", "-c", script, "sh", *_SINFO, seconds=ANSWER_SECONDS)
    if done.returncode != 0:
        return (), complaint(done), None
    nodes = (node_of(line) for line in sorted(set(done.stdout.splitlines())) if line.count("|") >= 3)
    return tuple(nodes), "", not done.stdout.endswith(_SILENT) if accounting else None


def node_of(line: str) -> SlurmNode:
    """A node as sinfo prints it. A reason may have separators in it."""
    name, state, rest = line.split("|", 2)
    reason, _, extra = rest.rpartition("|")
    try:
        said = json.loads(extra)
    except ValueError:  # somebody else's text
        said = {}
    confinement = said.get(CONFINEMENT, "") if isinstance(said, dict) else ""
    return SlurmNode(name=name, state=state, reason="" if reason == "none" else reason, confinement=str(confinement))


def is_down(state: str) -> bool:
    """Whether slurmctld gives no jobs to a node in this state."""
    return state.startswith(("down", "drain", "fail", "unknown", "future")) or state.endswith("*")


def missing_workers(workers: Workers) -> str:
    """What is missing of the workers; empty if nothing is."""
    if workers.ready == workers.wanted and not workers.fewer:
        return ""
    told = f"workers: {workers.ready} of {workers.wanted} ready"
    if not workers.fewer:
        return told
    return (
        f"{told}: the cluster was told to have fewer ({', '.join(workers.fewer)}). A destroy or scale-in is under way "
        "or was cut short, or the stack file is not applied yet: `up` brings them"
    )
