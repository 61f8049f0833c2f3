"""What runs: asked of Kubernetes and of Slurm at the same time, and whether it is whole."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from cli.access.reach import address_of
from cli.errors import Failure
from cli.kubectl.client import Kubectl, complaint, message, understood
from cli.kubectl.pods import LEAVING, Pod, image_tags, pod_of
from cli.status.slurm import Queue, Said, SlurmNode, ask_slurm, describe_configuration, is_down
from config.cluster import ClusterConfig
from images.common.readiness import JAIL_MARKER
from slurm.names import HOMES_ENV, JAIL_DIR, POOL_LABEL, REST, REST_PORT, node_name

_SECONDS = 20
"""For Kubernetes' answer."""

_JAIL_SECONDS = 5
"""For the answer: a file server that is away never gives one."""

_JAIL_SCRIPT = (
    f"timeout -k 1 {_JAIL_SECONDS} df -Pk {JAIL_DIR} ${HOMES_ENV} && echo && "
    f"timeout 1 head -c 4096 {JAIL_DIR}/{JAIL_MARKER}"
)


@dataclass(frozen=True, kw_only=True)
class Workers:
    """The workers of the stack file, of all pools together."""

    ready: int
    """Those of `wanted` that run and do not leave."""
    wanted: int
    """Those that always have to be there: of an elastic pool its `min`."""


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
class Roll:
    """A pool of a fixed size whose pods are replaced as their nodes fall idle."""

    pool: str
    old: int
    """Nodes that have no new pod yet."""
    size: int
    failing: tuple[str, ...] = ()
    """New pods that are not ready. They count as nodes that are away (`rolling.max_unavailable`)."""


@dataclass(frozen=True, kw_only=True)
class Jail:
    """The jail's file system."""

    seen_by: str
    """The pod that was asked."""
    mounted: bool
    size: int = 0
    """Bytes."""
    free: int = 0
    """Bytes."""
    version: str = ""
    """Of the image that it was populated from; empty if it was not."""
    homes: tuple[int, int] | None = None
    """Size and free bytes of the volume of homes, where they have one."""


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
    """The state of a cluster. Its fields are the keys of `status --json`: CHANGELOG.md names those that go."""

    namespace: str
    pods: tuple[Pod, ...]
    workers: Workers
    nodes: tuple[SlurmNode, ...]
    slurmctld: str
    """Why slurmctld does not answer; empty if it does."""
    slurmdbd_answers: bool | None
    """None where nobody can tell: there is no accounting, or slurmctld does not answer."""
    configuration: str
    """`active`, `pending`, `rejected: ...`, `other than the stack file`, or `unknown`."""
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
    kept: tuple[str, ...] = ()
    """What `destroy` has kept, where nothing else is there."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Part -> why it could not be read."""
    reached_by: str = "kubectl"
    """kubectl with what leads into this cluster, as a shell takes it: its own default may be another cluster."""


_FINE = ("active", "unknown")
"""A configuration that is in force, or that nobody can ask about: a network policy may keep the API server from it."""

_REVISION = "controller-revision-hash"
"""Label of a pod: which template it was made of."""

_REFUSED = re.compile(r"\): ([a-z]+)(?:\.[a-z0-9.]+)? is forbidden")
"""What kubectl complains of a kind that these credentials may not see."""

KINDS = {"pods": "Pod", "statefulsets": "StatefulSet", "services": "Service"}
"""What Kubernetes is asked for."""


def read_status(kubectl: Kubectl, config: ClusterConfig) -> Status:
    """Ask Kubernetes, Slurm and a pod that has the jail: three calls at a time.

    What does not answer, or may not be read, is shown as missing, not raised.
    """
    namespace = config.cluster.namespace
    with ThreadPoolExecutor() as pool:  # each is a process that mostly waits
        listed = pool.submit(read_objects, kubectl, namespace, KINDS, seconds=_SECONDS)
        asked = pool.submit(ask_slurm, kubectl, namespace, accounting=config.accounting.enabled)
        seen = pool.submit(_read_jail, kubectl, namespace, _with_jail(config))
        # Loaded while they run: templates take as long as one of them.
        from slurm.conf import config_hash, render  # noqa: PLC0415

        wanted = config_hash(render(config))
    (objects, unread), slurm, (jail, no_jail) = listed.result(), asked.result(), seen.result()
    unread = {**unread, **slurm.unread, **({"jail": no_jail} if no_jail else {})}
    state, nodes = slurm.parts.get("configuration"), slurm.parts.get("nodes", ())
    configuration = describe_configuration(wanted, state)
    items = [item for item in objects if item["kind"] == "Pod" and _owner(item) != "Job"]
    pods = tuple(map(pod_of, items))
    workers = _workers(config, pods)
    addresses = {item["metadata"]["name"]: address_of(item) for item in objects if item["kind"] == "Service"}
    rest = addresses.get(REST) if config.rest.enabled else None
    return Status(
        namespace=namespace,
        pods=pods,
        workers=workers,
        nodes=nodes,
        slurmctld=slurm.slurmctld,
        slurmdbd_answers=slurm.slurmdbd_answers,
        configuration=configuration,
        login_address=addresses.get("login"),
        rest_address=f"https://{rest}:{REST_PORT}" if rest else None,
        healthy=_is_healthy(config, items, workers, slurm, configuration),
        pools=_pools(config, items, nodes),
        rolls=tuple(_rolls(objects)),
        queue=slurm.parts.get("queue"),
        jail=jail,
        versions=Versions(
            slurm=str((state or {}).get("slurm_version") or ""),
            images=image_tags(items),
            slurmstack=version("slurmstack"),
        ),
        kept=() if objects or unread.keys() & KINDS.keys() else _kept(kubectl, namespace),
        unread=unread,
        reached_by=kubectl.shown,
    )


def read_objects(
    kubectl: Kubectl, namespace: str, kinds: Mapping[str, str], *options: str, seconds: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The objects of these kinds, as far as these credentials may see them, and why the other kinds could not be read.

    `kinds`: as the API server calls them where it refuses one -> as an object calls itself.
    """
    asked = ",".join(kinds.values()).lower()
    done = kubectl.run("get", asked, "-n", namespace, *options, "-o", "json", check=False, seconds=seconds)
    try:
        found: list[dict[str, Any]] = understood(done.stdout)["items"] if done.stdout.strip() else []
    except Failure as failure:  # a proxy's page, say
        return [], dict.fromkeys(kinds, failure.message)
    if done.returncode == 0:
        return found, {}
    refused = set(_REFUSED.findall(done.stderr)) & kinds.keys()
    if refused:
        return found, dict.fromkeys(refused, "not allowed")
    why = " ".join(message(done.stderr).split())[:200] or "kubectl failed without a word"
    there = {item["kind"] for item in found}
    return found, {name: why for name, kind in kinds.items() if kind not in there}


def _kept(kubectl: Kubectl, namespace: str) -> tuple[str, ...]:
    from cli.change.owner import only_kept  # noqa: PLC0415  what it loads takes long

    try:
        found = only_kept(kubectl, namespace)
    except Failure:  # whoever may not read claims sees that nothing runs
        return ()
    return tuple(found.lines) if found is not None else ()


def _with_jail(config: ClusterConfig) -> list[tuple[str, str]]:
    """Pods that have the jail, by their names: a login node, and where there is none or it is away, workers."""
    workers = [(node_name(name, 0), "slurmd") for name, pool in config.worker_nodes.items() if pool.least]
    return [("login-0", "sshd"), *workers[:2]]


def _read_jail(kubectl: Kubectl, namespace: str, places: Sequence[tuple[str, str]]) -> tuple[Jail | None, str]:
    """What the first of these pods, each with a container, that answers says; else None, and why the last did not."""
    why = "no pod of the stack has the jail"
    for pod, container in places:
        where = ("exec", "-n", namespace, pod, "-c", container, "--", "sh", "-c", _JAIL_SCRIPT)
        done = kubectl.run(*where, check=False, seconds=_JAIL_SECONDS + 2)
        found = _jail(pod, done.stdout)
        if found is not None:
            return found, ""
        why = f"{pod}: {' '.join(complaint(done).split())}"
        if "forbidden" in done.stderr:
            return None, f"not allowed to run commands in {pod}"
    return None, why


def _jail(pod: str, printed: str) -> Jail | None:
    table, _, marker = printed.partition("\n\n")
    rows = [line.split() for line in table.splitlines()[1:]]
    if not rows or not all(len(row) >= 6 and row[1].isdecimal() and row[3].isdecimal() for row in rows):
        return None
    try:
        version = str(json.loads(marker)["version"])[:64]
    except (ValueError, KeyError, TypeError, RecursionError):  # root in the jail may write anything there
        version = ""
    (size, free), *homes = [(1024 * int(row[1]), 1024 * int(row[3])) for row in rows]
    mounted = rows[0][5] == JAIL_DIR
    return Jail(seen_by=pod, mounted=mounted, size=size, free=free, version=version, homes=homes[0] if homes else None)


def _owner(item: Mapping[str, Any]) -> str:
    """Kind of what has made a pod; empty if nobody knows."""
    return next((str(owner["kind"]) for owner in item["metadata"].get("ownerReferences", [])), "")


def _pool_of(item: Mapping[str, Any]) -> str:
    return str((item["metadata"].get("labels") or {}).get(POOL_LABEL, ""))


def _is_healthy(
    config: ClusterConfig, items: Sequence[Mapping[str, Any]], workers: Workers, slurm: Said, configuration: str
) -> bool:
    """Whether all pods run, and Slurm answers, has its nodes, and runs with the configuration of the stack file.

    A pool's leaving node may wait for jobs for days, and is none of those that are counted. Nodes of elastic pools come
    and go as they should; those that always have to be there are counted, too. One of a Deployment that leaves may have
    another one in its place already.
    """
    elastic = {name for name, pool in config.worker_nodes.items() if pool.is_elastic}
    whole = all(
        (pod.ready and (pod.phase != LEAVING or _owner(item) != "StatefulSet" or _pool_of(item)))
        or _pool_of(item) in elastic
        for item, pod in zip(items, map(pod_of, items), strict=True)
    )
    usable = sum(not is_down(node.state) or node.state.startswith("drain") for node in slurm.parts.get("nodes", ()))
    answers = not slurm.slurmctld and slurm.slurmdbd_answers is not False and configuration in _FINE
    return bool(items) and whole and workers.ready == workers.wanted and answers and usable >= workers.wanted


def _workers(config: ClusterConfig, pods: Sequence[Pod]) -> Workers:
    pools, up = config.worker_nodes.items(), {pod.name for pod in pods if pod.ready and pod.phase != LEAVING}
    ready = {name: sum(node_name(name, number) in up for number in range(pool.most)) for name, pool in pools}
    return Workers(
        # More of an elastic pool than have to be there stand in for none of another.
        ready=sum(min(ready[name], pool.least) for name, pool in pools),
        wanted=sum(pool.least for _, pool in pools),
    )


def _pools(config: ClusterConfig, items: Sequence[Mapping[str, Any]], nodes: Sequence[SlurmNode]) -> tuple[Pool, ...]:
    """In the order of the stack file, then those that are only in the cluster."""
    running = zip(items, map(pod_of, items), strict=True)
    ready = Counter(_pool_of(item) for item, pod in running if _pool_of(item) and pod.ready and pod.phase != LEAVING)
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


def _rolls(objects: Sequence[Mapping[str, Any]]) -> Iterator[Roll]:
    """Of these StatefulSets and pods. Not of pools whose template is the one that all their pods have."""
    pods = {item["metadata"]["name"]: item for item in objects if item["kind"] == "Pod"}
    for item in objects:
        revision = (item.get("status") or {}).get("updateRevision")
        if revision is None or not _pool_of(item):
            continue
        pool, size = item["metadata"]["name"], int(item["spec"].get("replicas", 1))
        there = [pods[name] for number in range(size) if (name := node_name(pool, number)) in pods]
        old = [pod for pod in there if pod["metadata"].get("labels", {}).get(_REVISION) != revision]
        if old:
            new = [pod_of(pod) for pod in there if pod not in old]
            failing = tuple(pod.name for pod in new if not pod.ready and pod.phase != LEAVING)
            yield Roll(pool=pool, old=len(old), size=size, failing=failing)
