"""What runs: asked of Kubernetes and of Slurm at the same time, and whether it is whole."""

from __future__ import annotations

import importlib.metadata
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cli.access.addresses import address_of
from cli.errors import Failure
from cli.kubectl.client import OWNERS, Kubectl, message, understood
from cli.kubectl.pods import LEAVING, Apply, Pod, image_tags, last_apply, pod_of
from cli.status.configuration import describe_configuration
from cli.status.jail import Jail, read_jail
from cli.status.rolls import Roll, rolls_in
from cli.status.slurm import Answers, Queue, SlurmNode, ask_slurm, is_down
from config.cluster import ClusterConfig
from slurm.names import POOL_LABEL, REST, REST_PORT, node_name

_SECONDS = 20
"""For Kubernetes' answer."""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The workers of the stack file, of all pools together."""

    ready: int
    """Those of `wanted` that run and do not leave."""
    wanted: int
    """Those that always have to be there: of an elastic pool its `min`."""
    fewer: tuple[str, ...] = ()
    """Pools of which the cluster itself was told to have less, or which it does not have."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The nodes of one pool, also of one that has left the stack file and still has some."""

    name: str
    wanted: int
    """By the stack file."""
    ready: int
    """Pods that run and do not leave."""
    allocated: int = 0
    """Nodes with jobs, and none of those below."""
    idle: int = 0
    drained: int = 0
    """Draining ones, too: they take no new jobs."""
    down: int = 0
    """Slurm gives them no jobs: they do not answer, or have failed."""
    other: int = 0
    """Reserved, in maintenance, ..."""


@dataclass(frozen=True, kw_only=True)
class Versions:
    """What runs."""

    slurm: str
    """As slurmctld's container has it, `24.11.5`; empty if it could not be asked."""
    images: tuple[str, ...]
    """Tags: several while pods are replaced."""
    slurmstack: str
    """Of this command."""


@dataclass(frozen=True, kw_only=True)
class Status:
    """The state of a cluster. Its fields are the keys of `status --json`: they are only ever added to."""

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
    pools: tuple[Pool, ...] = ()
    rolls: tuple[Roll, ...] = ()
    """Pools of which nodes still have pods of an older template."""
    queue: Queue | None = None
    """None where slurmctld does not answer."""
    jail: Jail | None = None
    """None where no pod could be asked."""
    versions: Versions = field(default_factory=lambda: Versions(slurm="", images=(), slurmstack=""))
    last_apply: Apply | None = None
    kept: tuple[str, ...] = ()
    """What `destroy` has kept, where nothing else is there."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Part -> why it could not be read."""
    reached_by: str = "kubectl"
    """kubectl with what leads into this cluster, as a shell takes it: its own default may be another cluster."""


_FINE = ("active", "unknown")
"""A configuration that is in force, or that nobody can ask about: a network policy may keep the API server from it."""

KINDS = {"pods": "Pod", "statefulsets": "StatefulSet", "services": "Service"}
"""What Kubernetes is asked for."""


def read_status(kubectl: Kubectl, config: ClusterConfig) -> Status:
    """Ask Kubernetes, Slurm and a pod that has the jail: three calls at a time.

    What does not answer, or may not be read, is shown as missing, not raised.
    """
    namespace = config.cluster.namespace
    with ThreadPoolExecutor() as pool:  # each is a process that mostly waits
        listed = pool.submit(_objects, kubectl, namespace)
        asked = pool.submit(ask_slurm, kubectl, namespace, accounting=config.accounting.enabled)
        seen = pool.submit(read_jail, kubectl, namespace, _with_jail(config))
        # Loaded while they run: templates take as long as one of them.
        from slurm.conf import config_hash, render  # noqa: PLC0415

        wanted = config_hash(render(config))
    (objects, unread), slurm, (jail, no_jail) = listed.result(), asked.result(), seen.result()
    unread = {**unread, **slurm.unread, **({"jail": no_jail} if no_jail else {})}
    try:
        configuration = describe_configuration(kubectl, config, wanted, slurm.configuration)
    except Failure as failure:
        configuration, unread = "unknown", {**unread, "configuration": failure.message}
    items = [item for item in objects if item["kind"] == "Pod" and _owner(item) != "Job"]
    pods = tuple(map(pod_of, items))
    workers = _workers(config, pods, [item for item in objects if item["kind"] == "StatefulSet"])
    addresses = {item["metadata"]["name"]: address_of(item) for item in objects if item["kind"] == "Service"}
    rest = addresses.get(REST) if config.rest.enabled else None
    slurm_state = slurm.configuration or {}
    return Status(
        namespace=namespace,
        pods=pods,
        workers=workers,
        nodes=slurm.nodes,
        slurmctld=slurm.slurmctld,
        slurmdbd_answers=slurm.slurmdbd_answers,
        configuration=configuration,
        login_address=addresses.get("login"),
        rest_address=f"https://{rest}:{REST_PORT}" if rest else None,
        healthy=_is_whole(items, pods, config)
        and not missing_workers(workers)
        and _is_fine(slurm, workers, configuration),
        pools=_pools(config, items, slurm.nodes),
        rolls=rolls_in(objects),
        queue=slurm.queue,
        jail=jail,
        versions=Versions(
            slurm=str(slurm_state.get("slurm_version") or ""),
            images=image_tags(items),
            slurmstack=_own_version(),
        ),
        last_apply=last_apply(objects),
        kept=() if objects or unread.keys() & KINDS.keys() else _kept(kubectl, namespace),
        unread=unread,
        reached_by=kubectl.shown,
    )


def _objects(kubectl: Kubectl, namespace: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What Kubernetes has, as far as these credentials may see it, and why the rest could not be read."""
    done = kubectl.run(
        "get", ",".join(KINDS.values()).lower(), "-n", namespace, OWNERS, "-o", "json", check=False, seconds=_SECONDS
    )
    try:
        found = list(understood(done.stdout)["items"]) if done.stdout.strip() else []
    except (Failure, KeyError, TypeError):
        found = []
    if done.returncode == 0:
        return found, {}
    return found, _refusals(done, {item["kind"] for item in found})


def _kept(kubectl: Kubectl, namespace: str) -> tuple[str, ...]:
    from cli.change.destroy import only_kept  # noqa: PLC0415  what it loads takes long

    try:
        found = only_kept(kubectl, namespace)
    except Failure:  # whoever may not read claims sees that nothing runs
        return ()
    return tuple(found.lines) if found is not None else ()


def _refusals(done: subprocess.CompletedProcess[str], read: set[str]) -> dict[str, str]:
    """Kind -> why it could not be read: kubectl complains in a line of its own of each."""
    lines = message(done.stderr).splitlines() or ["kubectl failed without a word"]
    refused = {name: line for line in lines for name in KINDS if f'cannot list resource "{name}"' in line}
    others = {name: lines[-1] for name, kind in KINDS.items() if kind not in read} if not refused else {}
    return dict.fromkeys(refused, "not allowed") | others


def _with_jail(config: ClusterConfig) -> list[tuple[str, str]]:
    """Pods that have the jail, by their names: a login node, and where there is none or it is away, workers."""
    workers = [(node_name(name, 0), "slurmd") for name, pool in config.worker_nodes.items() if pool.least]
    return [("login-0", "sshd"), *workers[:2]]


def _own_version() -> str:
    try:
        return importlib.metadata.version("slurmstack")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _owner(item: Mapping[str, Any]) -> str:
    """Kind of what has made a pod; empty if nobody knows."""
    return next((str(owner["kind"]) for owner in item["metadata"].get("ownerReferences", [])), "")


def _is_whole(items: Sequence[Mapping[str, Any]], pods: Sequence[Pod], config: ClusterConfig) -> bool:
    """Whether all pods run. A pool's leaving node may wait for jobs for days, and is none of those that are counted.

    Nodes of elastic pools come and go as they should; those that always have to be there are counted, too.
    """
    elastic = {name for name, pool in config.worker_nodes.items() if pool.is_elastic}
    return bool(pods) and all(
        (pod.ready and (pod.phase != LEAVING or _may_leave(item)))
        or (item["metadata"].get("labels") or {}).get(POOL_LABEL) in elastic
        for item, pod in zip(items, pods, strict=True)
    )


def _may_leave(item: Mapping[str, Any]) -> bool:
    """Whether a pod that leaves can have another one in its place already, or is a worker, which is counted."""
    return _owner(item) != "StatefulSet" or POOL_LABEL in item["metadata"].get("labels", {})


def _is_fine(slurm: Answers, workers: Workers, configuration: str) -> bool:
    """Whether Slurm answers, has its nodes, and runs with the configuration of the stack file."""
    usable = sum(not is_down(node.state) or node.state.startswith("drain") for node in slurm.nodes)
    answers = not slurm.slurmctld and slurm.slurmdbd_answers is not False
    return answers and usable >= workers.wanted and configuration in _FINE


def _workers(config: ClusterConfig, pods: Sequence[Pod], sets: Sequence[Mapping[str, Any]]) -> Workers:
    up = {pod.name for pod in pods if pod.ready and pod.phase != LEAVING}
    ready = {
        name: sum(node_name(name, number) in up for number in range(pool.most))
        for name, pool in config.worker_nodes.items()
    }
    fixed = {name: pool.least for name, pool in config.worker_nodes.items() if not pool.is_elastic}
    told = {
        item["metadata"]["name"]: int(item["spec"].get("replicas", 1))
        for item in sets
        if "deletionTimestamp" not in item["metadata"]
    }
    return Workers(
        # More of an elastic pool than have to be there stand in for none of another.
        ready=sum(min(ready[name], pool.least) for name, pool in config.worker_nodes.items()),
        wanted=sum(pool.least for pool in config.worker_nodes.values()),
        fewer=tuple(name for name, size in fixed.items() if told.get(name, 0) < size),
    )


def _pools(config: ClusterConfig, items: Sequence[Mapping[str, Any]], nodes: Sequence[SlurmNode]) -> tuple[Pool, ...]:
    """In the order of the stack file, then those that are only in the cluster."""
    ready = Counter(
        str(pool)
        for item in items
        if (pool := (item["metadata"].get("labels") or {}).get(POOL_LABEL))
        and (pod := pod_of(item)).ready
        and pod.phase != LEAVING
    )
    kinds = Counter((node.name.rpartition("-")[0], _kind(node.state)) for node in nodes)
    names = dict.fromkeys([*config.worker_nodes, *sorted(ready), *sorted({name for name, _ in kinds})])
    return tuple(
        Pool(
            name=name,
            wanted=config.worker_nodes[name].least if name in config.worker_nodes else 0,
            ready=ready[name],
            **{kind: kinds[name, kind] for kind in ("allocated", "idle", "drained", "down", "other")},
        )
        for name in names
    )


def _kind(state: str) -> str:
    """The column that a node is counted in."""
    if state.startswith("drain"):
        return "drained"
    if is_down(state):
        return "down"
    if state.startswith(("alloc", "mix", "comp")):
        return "allocated"
    return "idle" if state.startswith(("idle", "planned")) else "other"


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
