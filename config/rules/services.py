"""What must hold for services and volumes: accounting, REST API, monitoring, images, mounts, two controllers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from config.base import parse_bytes
from config.cluster import Sections
from config.errors import Found
from config.nebius.cloud import NebiusCloud
from config.rules.settings import slurmdbd_settings
from config.sections.accounting import Accounting
from config.sections.cloud import Cloud
from config.sections.monitoring import Monitoring
from config.sections.scheduling import Partition, Preemption
from config.sections.services import (
    CUDA_VERSIONS,
    LEAST_WITH_CUDA,
    NO_CUDA,
    Cluster,
    Controller,
    Dashboard,
    Images,
    Login,
    NetworkPolicies,
    Rest,
)
from config.sections.slurm import Slurm, folded
from config.sections.storage import Jail, Mount

_PROMETHEUS = "prometheus"
_QUEUE = "enable_rpc_queue"
_NO_POLICIES = "has no effect: only network policies could enforce it, and network_policies.enabled is false"


def login(login: Login) -> Found:
    """Ranges that nothing would hold to."""
    if login.source_ranges and login.service_type != "LoadBalancer":
        yield "login.source_ranges", "is only for service_type LoadBalancer"


def accounting(
    sections: Sections, accounting: Accounting, partitions: Mapping[str, Partition], preemption: Preemption | None
) -> Found:
    """Policy without accounting, accounting without policy."""
    if not accounting.enabled:
        yield from _without_accounting(sections, preemption)
    elif accounting.enforce is not None:
        yield from _enforcement(set(accounting.enforce), sections.names("accounts"), partitions)
    yield from slurmdbd_settings(accounting)


def _without_accounting(sections: Sections, preemption: Preemption | None) -> Found:
    """Limits and access that nothing would hold to."""
    off = "needs accounting, and accounting.enabled is false; set it to true, or remove this"
    for section in ("accounts", "qos", "reservations"):
        if sections.names(section):
            yield section, off
    for section, fields in (
        ("users", ("accounts", "default_account")),
        ("partitions", ("allow_accounts", "deny_accounts", "allow_qos", "deny_qos", "qos")),
    ):
        for name, one in sections.get(section).items():
            yield from ((f"{section}.{name}.{field}", off) for field in fields if getattr(one, field))
    if preemption is not None and preemption.type == "qos":
        yield "preemption.type", f"qos {off}"


def _enforcement(wanted: set[str], accounts: list[str], partitions: Mapping[str, Partition]) -> Found:
    """slurm.conf(5): limits, qos and safe bring associations with them, and safe brings limits."""
    needs = sorted(wanted & {"associations", "limits", "qos", "safe", "wckeys"})
    if needs and not accounts:
        message = (
            f"has {', '.join(needs)}, but no accounts are declared, so that nobody could run a job; declare them in "
            f"slurmstack:accounts, or leave enforce out"
        )
        yield "accounting.enforce", message
    if not needs:
        for name, partition in partitions.items():
            for field in ("allow_accounts", "deny_accounts"):
                if getattr(partition, field):
                    message = "has no effect, as accounting.enforce lacks associations; add it there, or remove this"
                    yield f"partitions.{name}.{field}", message


def rest(rest: Rest, accounting: Accounting | None, network_policies: NetworkPolicies | None) -> Found:
    """What the API needs, and ranges that nothing would hold to."""
    if rest.enabled and accounting is not None and not accounting.enabled:
        # Measured with 24.11.5 and 26.05.5: the thread waits for itself in assoc_mgr_get_admin_level_locked.
        message = (
            "needs accounting.enabled: without accounting, Slurm stops for good when somebody cancels another's job "
            "through the API"
        )
        yield "rest.enabled", message
    unheld = network_policies is not None and not network_policies.enabled
    if rest.source_ranges and rest.service_type != "LoadBalancer" and unheld:
        yield "rest.source_ranges", _NO_POLICIES


def dashboard(dashboard: Dashboard, rest: Rest) -> Found:
    """The page has neither a certificate nor an address of its own."""
    if dashboard.enabled and not rest.enabled:
        message = (
            "needs the REST API, behind whose TLS it is, and rest.enabled is false; set it to true, or remove this"
        )
        yield "dashboard.enabled", message


def monitoring(sections: Sections, monitoring: Monitoring, cloud: Cloud | None, cluster: Cluster | None) -> Found:
    """Prometheus' StatefulSet and its pod have the names that a pool of its name would have.

    A Prometheus of the operator's is apart from the users' programs.
    """
    if monitoring.install and _PROMETHEUS in sections.names("worker_nodes"):
        message = "is the name of Prometheus' own pods with monitoring.install; take another one"
        yield f"worker_nodes.{_PROMETHEUS}", message
    if monitoring.has_kube_state and monitoring.kube_state_image is None and cloud is not None and not cloud.is_local:
        message = "is required with kube_state on this cluster: only the local cluster builds an image by itself"
        yield "monitoring.kube_state_image", message
    if monitoring.existing is not None and cluster is not None and monitoring.existing.namespace == cluster.namespace:
        message = (
            f"is {cluster.namespace!r}, this cluster's own namespace, where users' programs run, too; name that of the "
            f"Prometheus"
        )
        yield "monitoring.existing.namespace", message


def network(network_policies: NetworkPolicies) -> Found:
    """What only network policies could hold to."""
    if not network_policies.enabled and "egress" in network_policies.model_fields_set:
        yield "network_policies.egress", _NO_POLICIES


def images(images: Images, slurm: Slurm | None, jail: Jail | None) -> Found:
    """What is in the jail's image."""
    if slurm is not None and images.jail.cuda and slurm.version not in CUDA_VERSIONS:
        yield "images.jail.cuda", NO_CUDA.format(version=slurm.version)
    if images.jail.cuda and jail and parse_bytes(jail.size) < parse_bytes(LEAST_WITH_CUDA):
        message = (
            f"{jail.size} is too small for a jail with CUDA (images.jail.cuda), which has 6.2 GB before anybody has "
            f"written a file; at least {LEAST_WITH_CUDA}"
        )
        yield "jail.size", message


def mounts(mounts: Mapping[str, Mount], jail: Jail | None) -> Found:
    """Mounts at one path, and mounts inside other mounts, which would hide what is below them."""
    paths = {name: PurePosixPath(mount.path) for name, mount in mounts.items()}
    for name, path in paths.items():
        where = f"mounts.{name}.path"
        if jail is not None and jail.homes is not None and path == PurePosixPath("/home"):
            yield where, "/home is the path of jail.homes; remove one of the two"
        for other, parent in paths.items():
            if path == parent and name > other:
                yield where, f"{path} is the path of the mount {other!r} already"
            elif parent in path.parents:
                yield where, f"{path} is inside {parent}, the path of the mount {other!r}; mounts cannot be nested"


def filesystems(sections: Sections) -> Found:
    """File systems of a cloud, in a stack on a cluster that is already there: the data would lie elsewhere."""
    accounting, jail = sections.get("accounting"), sections.get("jail")
    volumes: dict[str, Any] = {
        "jail": jail,
        "jail.homes": jail and jail.homes,
        "controller": sections.get("controller"),
    }
    volumes["accounting.database"] = accounting and accounting.database
    volumes |= {f"mounts.{name}": mount for name, mount in sections.get("mounts").items()}
    for where, volume in volumes.items():
        if volume is not None and "filesystem" in volume.model_fields_set and volume.filesystem is not None:
            message = (
                "is for clouds with file systems of their own, and this cluster is already there; remove it "
                "(storage_class chooses the storage)"
            )
            yield f"{where}.filesystem", message


def availability(controller: Controller, cloud: Cloud | None, slurm: Slurm | None) -> Found:
    """Two controllers write to one volume, and answer only what is saved."""
    if controller.replicas == 1:
        return
    both = "is 2, and both need the volume of the state at the same time, which a disk cannot give"
    if isinstance(cloud, NebiusCloud):
        if controller.filesystem is None:
            yield "controller.replicas", f"{both}: set controller.filesystem: {{}} for a shared file system"
        if cloud.controller_nodes.max_size < 2:
            message = (
                "is 1, and with controller.replicas: 2 each runs on a machine of its own; set min_size and max_size "
                "to 2"
            )
            yield "cloud.controller_nodes.max_size", message
    elif cloud is not None and not cloud.is_local and controller.storage_class is None:
        remedy = "name one in controller.storage_class whose volumes can be ReadWriteMany (docs/availability.md)"
        yield "controller.replicas", f"{both}: {remedy}"
    if slurm is not None and _QUEUE in str(folded(slurm.settings).get("slurmctldparameters", "")).lower():
        message = (
            f"has {_QUEUE} in SlurmctldParameters, with which slurmctld answers while it holds what it would have to "
            "save first; with controller.replicas: 2 remove it"
        )
        yield "slurm.settings", message
