"""What must hold for pools of workers, and for what looks at their nodes: partitions, tests, settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from config.base import MAX_NODES, parse_bytes, parse_cpus, span_seconds
from config.cluster import Sections
from config.errors import Found, unknown_name
from config.sections.cloud import Cloud
from config.sections.health import Health
from config.sections.scheduling import Partition
from config.sections.services import Cluster
from config.sections.slurm import SettingValue, Slurm, folded
from config.sections.workers import WorkerPool

Pools = Mapping[str, WorkerPool]
Partitions = Mapping[str, Partition]


def pools(sections: Sections, worker_nodes: Pools, cluster: Cluster | None) -> Found:
    """Names that Slurm can tell apart, and not too many nodes."""
    names = sections.names("worker_nodes")
    total = sum(pool.most for pool in worker_nodes.values())
    if total > MAX_NODES:
        yield "worker_nodes", f"{total} nodes in all pools together; {MAX_NODES} at most"
    for name in names:
        stem = re.sub(r"-\d+$", "", name)
        if stem != name and stem in names:
            message = f"is also the name of a node of the pool {stem!r}, and Slurm allows a name only once"
            yield f"worker_nodes.{name}", message
    for name, pool in worker_nodes.items():
        for feature in pool.features:
            if feature != name and feature in names:
                message = f"{feature!r} is the name of another pool, whose partitions would take these nodes too: "
                message += "Slurm tells the nodes of a pool by this feature; take another name"
                yield f"worker_nodes.{name}.features", message
        devices = pool.confinement == "required" and pool.resources.gpus.count
        if devices and cluster is not None and cluster.user_namespaces:
            # Cores and memory are another matter: a runtime may delegate the cgroups (docs/confinement.md).
            message = (
                "is required, and so is cluster.user_namespaces, where the kernel lets no pod say which GPUs a job may "
                "open: no worker would start. Take confinement: auto, or leave user_namespaces out"
            )
            yield f"worker_nodes.{name}.confinement", message
    if not names:
        yield "worker_nodes", "has no pool; write at least one, for example 'default: {size: 2, ...}'"


def partitions(sections: Sections, partitions: Partitions) -> Found:
    """Pools that are there, and one default."""
    names = sections.names("worker_nodes")
    for name, partition in partitions.items():
        for pool in partition.pools:
            if pool not in names:
                yield f"partitions.{name}.pools", unknown_name(pool, names, what="a pool of worker_nodes")
    default = [name for name, partition in partitions.items() if partition.default]
    if len(default) > 1:
        yield "partitions", f"{' and '.join(default)} are all marked default; only one partition can be"


def node_tests(health: Health, worker_nodes: Pools) -> Found:
    """Tests in `health.tests` that fit the pools."""
    amd = [name for name, pool in worker_nodes.items() if pool.resources.gpus.vendor == "amd"]
    unfit = [name for name in health.tests.run if name.startswith(("nccl", "dcgm"))]
    if health.tests.enabled and amd and unfit:
        message = (
            f"has {', '.join(unfit)}, which need NVIDIA's GPUs, and the pool {amd[0]!r} has those of AMD; name the "
            "other tests only"
        )
        yield "health.tests.run", message


def shared_memory(worker_nodes: Pools) -> Found:
    """`/dev/shm` is part of the pod's memory."""
    for name, pool in worker_nodes.items():
        size, memory = pool.shared_memory, pool.resources.memory
        if size is not None and parse_bytes(size) > parse_bytes(memory):
            message = f"{size} is more than the pod's memory of {memory}, of which it is part"
            yield f"worker_nodes.{name}.shared_memory", message


def default_memory(sections: Sections, worker_nodes: Pools, slurm: Slurm | None, partitions: Partitions) -> Found:
    """`DefMemPerCPU` for which no pool has the memory, in the whole cluster or in the partition that sets it.

    Slurm would hold every job that asks for none. One CPU's memory is looked at: how many a job asks for nobody knows.
    Nothing is said of pools that are wrong.
    """
    if slurm is not None:
        yield from _too_much("slurm.settings", slurm.settings, sections.names("worker_nodes"), worker_nodes)
    for name, partition in partitions.items():
        yield from _too_much(f"partitions.{name}.settings", partition.settings, partition.pools, worker_nodes)


def _too_much(where: str, settings: Mapping[str, SettingValue], names: Iterable[str], pools: Pools) -> Found:
    written = str(folded(settings).get("defmempercpu", ""))
    if not written.isdecimal() or not names or any(name not in pools for name in names):
        return
    largest = max((pools[name].resources.memory for name in names), key=parse_bytes)
    # Not less is too much already: slurmd keeps some of the pod's memory for itself.
    if float(written) * 2**20 >= parse_bytes(largest):
        message = (
            f"has DefMemPerCPU {written} (MiB), and no node has that for even one CPU: the largest has {largest}, less "
            "what slurmd needs. Jobs that ask for no memory would never start; write less"
        )
        yield where, message


def confinement(worker_nodes: Pools, cloud: Cloud | None) -> Found:
    """Cores are held where Kubernetes has given them all to the pod: a worker that shares them would not start."""
    for name, pool in worker_nodes.items():
        resources = pool.resources
        if pool.confinement != "required" or not pool.confines:
            continue
        if resources.cpu_request is not None and parse_cpus(resources.cpu_request) < resources.cpus:
            why = f"a cpu_request of {resources.cpu_request} leaves CPUs to other pods"
        elif resources.cpu_request is None and cloud is not None and cloud.is_local:
            why = "workers of the local cluster share the machine's CPUs unless cpu_request says otherwise"
        else:
            continue
        message = f"is required, and {why}; set cpu_request to at least cpus, {resources.cpus}, or confinement: auto"
        yield f"worker_nodes.{name}.confinement", message


_HIDDEN: Final = "elastic-"
"""What the names of the hidden partitions begin with (slurm/elastic.py)."""

_OF_ELASTIC_POOLS: Final = (
    "resumeprogram", "suspendprogram", "resumefailprogram", "prologslurmctld", "suspendtime", "suspendtimeout",
    "resumetimeout", "resumerate", "suspendrate", "suspendexcnodes", "suspendexcstates", "suspendexcparts",
)  # fmt: skip


def elastic(worker_nodes: Pools, slurm: Slurm | None, partitions: Partitions) -> Found:
    """Settings and sections that do not go with elastic pools, and names that are taken."""
    pools = {name: pool for name, pool in worker_nodes.items() if pool.is_elastic}
    if not pools:
        return
    first = next(iter(pools))
    ours = f"is what starts and ends the nodes of the elastic pool {first!r}; remove it, or give the pool a fixed size"
    written = folded(slurm.settings) if slurm is not None else {}
    for key in _OF_ELASTIC_POOLS:
        if key in written:
            yield f"slurm.settings.{key}", ours
    yield from _settings_of_waiting_jobs(written, max(span_seconds(pool.resume_timeout) for pool in pools.values()))
    for name, partition in partitions.items():
        for key in sorted(folded(partition.settings).keys() & set(_OF_ELASTIC_POOLS)):
            yield f"partitions.{name}.settings.{key}", ours
        if name.removeprefix(_HIDDEN) in pools and name.startswith(_HIDDEN):
            yield f"partitions.{name}", "is the name of a partition that we make for the elastic pool"
    if str(written.get("topologyplugin", "")).lower().rpartition("/")[2] == "block":
        message = (
            f"is block, in which nodes of the elastic pool {first!r} have no place while they are off; leave it out "
            "and set topology.plugin: tree, or give the pool a fixed size"
        )
        yield "slurm.settings.TopologyPlugin", message


def _settings_of_waiting_jobs(written: Mapping[str, SettingValue], longest: int) -> Found:
    """Settings that would end what elastic pools wait for, or lift what keeps jobs from a node."""
    for key in ("prologepilogtimeout", "prologtimeout"):
        value = str(written.get(key, ""))
        if value.isdecimal() and int(value) < longest:
            message = (
                f"is {value} s, and a job waits for its nodes in PrologSlurmctld for up to {longest} s "
                "(resume_timeout); write no less, or leave it out"
            )
            yield f"slurm.settings.{key}", message
    if "idle_on_node_suspend" in str(written.get("slurmctldparameters", "")).lower():
        message = "has idle_on_node_suspend, which lifts the drains of nodes that are powered down; leave it out"
        yield "slurm.settings.SlurmctldParameters", message
