"""Names and ports that the parts of a cluster know each other by, and the releases of Slurm in their order."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

CONTROLLER = "controller"
"""Name of the controller's StatefulSet."""

CONTROLLER_HOST = "controller-0"
"""slurmctld's host: the pod's name, and the name of the ClusterIP Service whose address survives the pod."""

SHARED_STATE = "/var/lib/slurmstack/state"
"""Where two controllers mount the state volume; STATE_DIR is a link into it (images/common/terms.py)."""

ACTIVE = "slurmstack/active"
"""Label of the active one of two controllers, which it sets itself (images/controller/standby.py)."""

STANDBY_PORT = 8820
"""HTTP port on which each of two controllers says whether it is ready, for kubelet alone."""

STACK = "slurmstack/stack"
"""Annotation of the cluster's namespace: name of the stack that makes it."""

NODES_SERVICE = "nodes"
"""Headless Service over all workers and login nodes: it gives `<node>` a DNS name."""

SLURMCTLD_PORT = 6817
SLURMD_PORT = 6818
JOB_METRICS_PORT = 9306
"""HTTP port of the workers' metrics of jobs (images/worker/job_metrics)."""

SSH_PORT = 22
AGENT_PORT = 8817
"""HTTP port of the configuration agent."""

SLURMDBD_PORT = 6819
REST_PORT = 6820
DATABASE_PORT = 3306
PROMETHEUS_PORT = 9090
ALERTMANAGER_PORT = 9093

ACCOUNTING = "slurmdbd"
"""Name of slurmdbd's StatefulSet."""

ACCOUNTING_HOST = "slurmdbd-0"
"""slurmdbd's host: the pod's name, and the name of the ClusterIP Service whose address survives the pod."""

DATABASE = "database"
"""Name of MariaDB's StatefulSet and of its Service."""

WORKER = "worker"
"""Component of the worker pods, in their label `app.kubernetes.io/component`."""

IMAGES = "images"
"""Component of the job that tries the control plane's images, and what its name begins with."""

ELASTIC = "elastic"
"""Name of the Deployment and of the Service of the program that makes and ends the pods of elastic pools, and replaces
those of an older template."""

MAX_UNAVAILABLE = "slurmstack/max-unavailable"
"""Annotation of a pool's StatefulSet or PodTemplate: how many nodes may be away at once for new pods."""

POOL_LABEL = "slurmstack/pool"
"""Label of all that belongs to a pool of workers: its name."""

ELASTIC_SETTINGS = "slurmstack/elastic"
"""Annotation of an elastic pool's PodTemplate: what the program is told of the pool."""

ELASTIC_TEMPLATE = "slurmstack/template"
"""Another one: the digest of the template. A pod of the pool that has another one in its label is made anew."""

CONTROL = "control"
"""What is first where machines have no room for all (components/cluster.py)."""

ELASTIC_PORT = 8818
"""Where slurmctld's programs ask it."""

LOGIN = "login"
"""Name of the login nodes' StatefulSet and Service and of their pods' component."""

SUSPEND_TIMEOUT = 5
"""Seconds for the pod of an idle node to end; Slurm starts the node again after them at the earliest."""

BACKUP = "backup"
"""Name of the CronJob that saves the cluster, and component of its pods and of those that look at backups."""

BACKUPS = "backups"
"""Name of the suspended CronJob that `slurmstack backup list` and `verify` make their Jobs from."""

RESTORE = "restore"
"""The same for `slurmstack restore`."""

REHEARSE = "rehearse"
"""The same for `slurmstack backup rehearse`."""

EXPORTER = "exporter"
"""Name of the exporter's Deployment and of its Service."""

EXPORTER_PORT = 9341
"""Where Prometheus reads it, at /metrics."""

REST = "rest"
"""Name of slurmrestd's Deployment and of its Service."""

PROMETHEUS = "prometheus"
"""Name of Prometheus' StatefulSet and Service and of its pods' component, with `monitoring.install`."""

ALERTMANAGER = "alertmanager"
"""Name of Alertmanager's Service. It is in Prometheus' pod."""

KUBE_STATE = "kube-state"
"""Name of kube-state-metrics' Deployment and of its Service, with `monitoring.kube_state`."""

KUBE_STATE_PORT = 8080
"""Its usual one."""

SRUN_PORTS = (60001, 63000)
"""Ports on which `srun` and `salloc` listen for their steps, on login nodes and workers."""

JWT_KEY = "/run/slurmstack/keys/jwt_hs256.key"
"""Where the programs of slurmctld and slurmdbd put the key of the tokens (images/common/files.py)."""

STATE_DIR = "/var/spool/slurmctld"
JAIL_DIR = "/jail"

JAIL_ROOTS = ".slurmstack-roots"
"""At the top of the jail's volume: the roots besides the first one. images/common/jail_roots.py has the same."""

JAIL_ROOT = "JAIL_ROOT"
"""In the environment of containers that mount a root, or fill it: its name. Not set for the first one."""

JAIL = "jail"
"""Claim of the jail's volume."""

HOMES = "homes"
"""Claim of the volume of homes, where they have one."""

HOMES_ENV = "HOMES"
"""In the environment of containers that mount it: where. images/common/jail_view.py reads it."""

CONFIG_MAP = "slurm-config"
"""ConfigMap with Slurm's files. Its name is fixed: the configuration agent follows its changes."""

GENERATED = "slurmstack-generated"
"""Secret with the seeds of all keys, where `slurmstack` applies with kubectl."""

RELEASE_ANNOTATION = "slurmstack/slurm-release"
"""Of a StatefulSet whose image is named by a digest, which does not tell the release of Slurm."""

SIZE_ANNOTATION = "slurmstack/size"
"""On volume claims that ask for less than their volume has: the size in the stack file."""


def node_name(pool: str, ordinal: int) -> str:
    """Name of a Slurm node, which is also the name of its pod and its host."""
    return f"{pool}-{ordinal}"


CONFINEMENT = "confinement"
"""Key of a node's `Extra`, which says to what its jobs are held (images/worker/slurmd.py)."""


def content_name(stem: str, content: Any) -> str:
    """`<stem>-<8 hex>`: another content gives another name, and so a new object beside the old one.

    `content` is anything that JSON can hold; the order of keys does not matter.
    """
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{stem}-{hashlib.sha256(canonical.encode()).hexdigest()[:8]}"


RELEASES: Final = ("23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05")
"""From the oldest that can become one of ours. A major release is a month; what follows it only mends."""

WINDOW: Final = 3
"""Major releases that slurmdbd and slurmctld read back: states, tables and messages of older ones they refuse."""


def obstacle(old: str, new: str) -> str | None:
    """Why a cluster of the release `old` cannot become one of `new`, in words that follow `24.11 to 26.05`; or None."""
    before, after = RELEASES.index(old), RELEASES.index(new)
    if after == before:
        return "is no upgrade: that release runs already"
    if after < before:
        return "goes back: slurmdbd and slurmctld never read what a newer one has left"
    if after - before > WINDOW:
        between = RELEASES[before + WINDOW]
        return f"is more than {WINDOW} releases: go by way of {between}"
    return None
