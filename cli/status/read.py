"""What runs: asked of Kubernetes and of Slurm at the same time, and whether it is whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

from cli.access.reach import address_of
from cli.errors import Failure
from cli.kubectl.client import Kubectl, complaint, labels_of
from cli.kubectl.pods import Pod as PodShown
from cli.kubectl.pods import image_tags, pod_of
from cli.status.questions import STATUS, ListedNode
from cli.status.snapshot import Pod, Snapshot, take
from cli.text import brief
from config.cluster import ClusterConfig
from images.common.readiness import JAIL_MARKER
from images.common.slurm_jobs import PENDING, RUNNING, Job
from images.common.slurm_node import OURS
from slurm.names import BACKUP, HOMES_ENV, JAIL_DIR, POOL_LABEL, REHEARSE, REST, REST_PORT, node_name

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
    """New pods that are not ready, or whose nodes are down or silent. They count as nodes that are away
    (`rolling.max_unavailable`)."""


@dataclass(frozen=True, kw_only=True)
class Queue:
    """The jobs that have not ended. Each task of an array counts."""

    running: int = 0
    pending: int = 0
    other: int = 0
    """Completing, suspended, ..."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Slurm's reason for waiting -> jobs, the most frequent one first."""


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
class Status:
    """The state of a cluster. Its fields are the keys of `status --json`: CHANGELOG.md names those that go."""

    namespace: str
    pods: tuple[PodShown, ...]
    workers: Workers
    nodes: tuple[ListedNode, ...]
    slurmctld: str
    """Why slurmctld does not answer; empty if it does."""
    slurmctld_lost_with: str
    """The machine with which slurmctld is down; empty where it answers, or its machine does."""
    active_controller: str
    """The pod in which slurmctld runs, where there are two controllers."""
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
    backups: Mapping[str, str | None] = field(default_factory=dict)
    """`backup`, `rehearse`: when the last one ended well, as Kubernetes writes times. Empty without backups."""
    versions: Mapping[str, Any] = field(default_factory=dict)
    """`slurm` as slurmctld's container has it, `images` (their tags: several while pods are replaced), `slurmstack`."""
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


def read_status(kubectl: Kubectl, config: ClusterConfig) -> Status:
    """Ask Kubernetes, Slurm and a pod that has the jail: three calls at a time.

    What does not answer, or may not be read, is shown as missing, not raised.
    """
    with ThreadPoolExecutor() as pool:
        seen = pool.submit(_read_jail, kubectl, config)
        cluster = take(kubectl, config, STATUS)
    jail, no_jail = seen.result()
    unread = {**cluster.unread, **({"jail": no_jail} if no_jail else {})}
    slurmctld = cluster.slurmctld or unread.pop("slurm", "")
    configuration = describe_configuration(cluster.wanted_configuration, cluster.configuration)
    pods = tuple(pod for pod in cluster.pods if pod.owner_kind != "Job")
    workers = _workers(config, pods)
    addresses = {item["metadata"]["name"]: address_of(item) for item in cluster.of("Service")}
    rest = addresses.get(REST) if config.rest.enabled else None
    found = Status(
        namespace=cluster.namespace,
        pods=tuple(pod_of(pod.item) for pod in pods),
        workers=workers,
        nodes=cluster.sinfo,
        slurmctld=slurmctld,
        slurmctld_lost_with=cluster.slurmctld_lost_with,
        active_controller=cluster.active_controller if config.controller.standby else "",
        # Nobody can tell of slurmdbd where slurmctld is silent.
        slurmdbd_answers=None if slurmctld else cluster.slurmdbd_answers,
        configuration=configuration,
        login_address=addresses.get("login"),
        rest_address=f"https://{rest}:{REST_PORT}" if rest else None,
        healthy=False,
        pools=_pools(config, pods, cluster.sinfo),
        rolls=tuple(_rolls(cluster)),
        queue=queue_of(cluster.jobs) if not slurmctld and "jobs" not in unread else None,
        jail=jail,
        backups={
            name: item.get("status", {}).get("lastSuccessfulTime")
            for item in cluster.of("CronJob")
            if (name := item["metadata"]["name"]) in {BACKUP, REHEARSE}
        },
        versions={
            "slurm": str((cluster.configuration or {}).get("slurm_version") or ""),
            "images": image_tags(pod.item for pod in pods),
            "slurmstack": version("slurmstack"),
        },
        kept=() if cluster.objects or unread.keys() & STATUS.parts else _kept(kubectl, cluster.namespace),
        unread=unread,
        reached_by=cluster.reached_by,
    )
    return replace(found, healthy=_is_whole(config, pods) and _works(found))


def describe_configuration(wanted: str, state: Mapping[str, Any] | None) -> str:
    """The configuration in force, as the agent's state has it, compared with the wanted one, a hash, in words."""
    if state is None:
        return "unknown"
    if state.get("active") == wanted:
        return "active"
    if rejected := state.get("rejected"):
        return f"rejected: {rejected['message']}"
    return "pending" if state.get("pending") else "other than the stack file"


def queue_of(jobs: Iterable[Job]) -> Queue:
    """The queue in numbers."""
    states: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for job in jobs:
        states[job.base_state] += job.tasks
        if job.waits:
            reasons[job.reason or "None"] += job.tasks
    return Queue(
        running=states[RUNNING],
        pending=states[PENDING],
        other=states.total() - states[RUNNING] - states[PENDING],
        reasons=dict(reasons.most_common()),
    )


def _kept(kubectl: Kubectl, namespace: str) -> tuple[str, ...]:
    from cli.change.owner import only_kept  # noqa: PLC0415  what it loads takes long

    try:
        found = only_kept(kubectl, namespace)
    except Failure:  # whoever may not read claims sees that nothing runs
        return ()
    return tuple(found.lines) if found is not None else ()


def _read_jail(kubectl: Kubectl, config: ClusterConfig) -> tuple[Jail | None, str]:
    """What a login node says, or a worker where there is none or it is away; else None, and why the last did not."""
    why, workers = "", [(node_name(name, 0), "slurmd") for name, pool in config.worker_nodes.items() if pool.least]
    for pod, container in [("login-0", "sshd"), *workers[:2]]:
        where = ("exec", "-n", config.cluster.namespace, pod, "-c", container, "--", "sh", "-c", _JAIL_SCRIPT)
        done = kubectl.run(*where, check=False, seconds=_JAIL_SECONDS + 2)
        if (found := _jail(pod, done.stdout)) is not None:
            return found, ""
        if "forbidden" in done.stderr:
            return None, f"not allowed to run commands in {pod}"
        why = brief(f"{pod}: {complaint(done)}")
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


def _is_whole(config: ClusterConfig, pods: Sequence[Pod]) -> bool:
    """Whether all pods run.

    A pool's leaving node may wait for jobs for days. Nodes of elastic pools come and go as they should. One of a
    Deployment that leaves may have another one in its place already.
    """
    elastic = config.elastic_pools
    return all(
        pod.pool in elastic or (pod.ready and (not pod.leaves or pod.owner_kind != "StatefulSet" or pod.pool != ""))
        for pod in pods
    )


def _works(status: Status) -> bool:
    """Whether the workers are there that always have to be, and Slurm answers, has them, and its configuration."""
    usable = sum(not node.is_down or node.state.startswith("drain") for node in status.nodes)
    answers = not status.slurmctld and status.slurmdbd_answers is not False and status.configuration in _FINE
    wanted = status.workers.wanted
    return bool(status.pods) and status.workers.ready == wanted and answers and usable >= wanted


def _workers(config: ClusterConfig, pods: Sequence[Pod]) -> Workers:
    pools, up = config.worker_nodes.items(), {pod.name for pod in pods if pod.is_up}
    ready = {name: sum(node_name(name, number) in up for number in range(pool.most)) for name, pool in pools}
    return Workers(
        # More of an elastic pool than have to be there stand in for none of another.
        ready=sum(min(ready[name], pool.least) for name, pool in pools),
        wanted=sum(pool.least for _, pool in pools),
    )


def _pools(config: ClusterConfig, pods: Sequence[Pod], nodes: Sequence[ListedNode]) -> tuple[Pool, ...]:
    """In the order of the stack file, then those that are only in the cluster."""
    ready = Counter(pod.pool for pod in pods if pod.pool and pod.is_up)
    kinds = Counter((node.name.rpartition("-")[0], _kind(node)) for node in nodes)
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


def _kind(node: ListedNode) -> str:
    """The column that a node is counted in."""
    if node.state.startswith("drain"):
        return "drained"
    if node.is_down:
        return "down"
    if node.state.startswith(("alloc", "mix", "comp")):
        return "allocated"
    return "idle" if node.state.startswith(("idle", "planned")) else "other"


def _is_failing(node: ListedNode) -> bool:
    """Whether Slurm does not have it, as `elastic` sees it: what an administrator has set down is nobody's fault."""
    if node.state.startswith("down"):
        return node.by == "slurm" or node.reason.startswith(OURS)
    return node.state.endswith("*")


def _rolls(cluster: Snapshot) -> Iterator[Roll]:
    """Not of pools whose template is the one that all their pods have."""
    failing_nodes = {node.name for node in cluster.sinfo if _is_failing(node)}
    for item in cluster.of("StatefulSet"):
        revision, pool = item.get("status", {}).get("updateRevision"), item["metadata"]["name"]
        if revision is None or not labels_of(item).get(POOL_LABEL):
            continue
        size = int(item["spec"].get("replicas", 1))
        there = [pod for number in range(size) if (pod := cluster.pod(node_name(pool, number)))]
        old = [pod for pod in there if labels_of(pod.item).get(_REVISION) != revision]
        if old:
            new = [pod for pod in there if pod not in old and not pod.leaves]
            failing = tuple(pod.name for pod in new if not pod.ready or pod.name in failing_nodes)
            yield Roll(pool=pool, old=len(old), size=size, failing=failing)
