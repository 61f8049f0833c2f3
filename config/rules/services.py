"""What must hold for accounting, the REST API, images and the rules at submission."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from config.base import longer, parse_bytes
from config.cluster import Sections
from config.errors import Problem, unknown_name
from config.rules.settings import has_gpus, has_shards, named_resources, slurmdbd_setting_problems
from config.sections.accounting import Accounting
from config.sections.cloud import Cloud
from config.sections.monitoring import Monitoring
from config.sections.scheduling import JobSubmit
from config.sections.services import (
    CUDA_VERSIONS,
    LEAST_WITH_CUDA,
    NO_CUDA,
    Cluster,
    Dashboard,
    Images,
    NetworkPolicies,
    Rest,
)
from config.sections.slurm import Slurm
from config.sections.storage import Jail

_PROMETHEUS = "prometheus"

_OFF = "needs accounting, and accounting.enabled is false; set it to true, or remove this"


def accounting_problems(sections: Sections) -> Iterator[Problem]:
    """Policy without accounting, accounting without policy."""
    accounting: Accounting | None = sections.get("accounting")
    if accounting is None:
        return
    if not accounting.enabled:
        yield from _without_accounting(sections)
    elif accounting.enforce is not None:
        yield from _enforcement(accounting, sections)
    yield from slurmdbd_setting_problems(accounting)


def _without_accounting(sections: Sections) -> Iterator[Problem]:
    """Limits and access that nothing would hold to."""
    for section in ("accounts", "qos", "reservations"):
        if sections.names(section):
            yield Problem(section, _OFF)
    for section, fields in (
        ("users", ("accounts", "default_account")),
        ("partitions", ("allow_accounts", "deny_accounts", "allow_qos", "deny_qos", "qos")),
    ):
        for name, one in sections.get(section).items():
            yield from (Problem(f"{section}.{name}.{field}", _OFF) for field in fields if getattr(one, field))
    preemption = sections.get("preemption")
    if preemption is not None and preemption.type == "qos":
        yield Problem("preemption.type", f"qos {_OFF}")


def _enforcement(accounting: Accounting, sections: Sections) -> Iterator[Problem]:
    """slurm.conf(5): limits, qos and safe bring associations with them, and safe brings limits."""
    wanted = set(accounting.enforce or ())
    where = "accounting.enforce"
    needs = sorted(wanted & {"associations", "limits", "qos", "safe", "wckeys"})
    if needs and not sections.names("accounts"):
        message = (
            f"has {', '.join(needs)}, but no accounts are declared, so that nobody could run a job; declare them in "
            f"slurmstack:accounts, or leave enforce out"
        )
        yield Problem(where, message)
    if not needs:
        for name, partition in sections.get("partitions").items():
            for field in ("allow_accounts", "deny_accounts"):
                if getattr(partition, field):
                    message = f"has no effect, as {where} lacks associations; add it there, or remove this"
                    yield Problem(f"partitions.{name}.{field}", message)


def submit_problems(sections: Sections) -> Iterator[Problem]:
    """Default times that are longer than the longest, and a rule that refuses everything."""
    rules: JobSubmit = sections.get("job_submit") or JobSubmit()
    for name, partition in sections.get("partitions").items():
        default = partition.default_time or rules.default_time
        if default is not None and longer(default, partition.max_time):
            where = f"partitions.{name}.default_time" if partition.default_time else "job_submit.default_time"
            message = f"{default} is longer than the max_time of the partition {name!r}, {partition.max_time}; take "
            yield Problem(where, message + f"less, or set partitions.{name}.default_time")
    if rules.require_account and not sections.names("accounts"):
        message = "is set, but no accounts are declared that a job could name; declare them in slurmstack:accounts"
        yield Problem("job_submit.require_account", message)


def rest_problems(sections: Sections) -> Iterator[Problem]:
    """What the API needs, and ranges that nothing would hold to."""
    rest: Rest | None = sections.get("rest")
    if rest is None:
        return
    accounting: Accounting | None = sections.get("accounting")
    if rest.enabled and accounting is not None and not accounting.enabled:
        # Measured with 24.11.5 and 26.05.5: the thread waits for itself in assoc_mgr_get_admin_level_locked.
        message = (
            "needs accounting.enabled: without accounting, Slurm stops for good when somebody cancels another's job"
        )
        yield Problem("rest.enabled", f"{message} through the API")
    policies: NetworkPolicies | None = sections.get("network_policies")
    if rest.source_ranges and rest.service_type != "LoadBalancer" and policies is not None and not policies.enabled:
        message = "has no effect: only network policies could enforce it, and network_policies.enabled is false"
        yield Problem("rest.source_ranges", message)


def dashboard_problems(sections: Sections) -> Iterator[Problem]:
    """The page has neither a certificate nor an address of its own."""
    dashboard: Dashboard | None = sections.get("dashboard")
    rest: Rest | None = sections.get("rest")
    if dashboard is not None and dashboard.enabled and rest is not None and not rest.enabled:
        message = (
            "needs the REST API, behind whose TLS it is, and rest.enabled is false; set it to true, or remove this"
        )
        yield Problem("dashboard.enabled", message)


def monitoring_problems(sections: Sections) -> Iterator[Problem]:
    """Prometheus' StatefulSet and its pod have the names that a pool of its name would have.

    A Prometheus of the operator's is apart from the users' programs.
    """
    monitoring: Monitoring | None = sections.get("monitoring")
    if monitoring is None:
        return
    if monitoring.install and _PROMETHEUS in sections.names("worker_nodes"):
        message = "is the name of Prometheus' own pods with monitoring.install; take another one"
        yield Problem(f"worker_nodes.{_PROMETHEUS}", message)
    cloud: Cloud | None = sections.get("cloud")
    if monitoring.has_kube_state and monitoring.kube_state_image is None and cloud is not None and not cloud.is_local:
        message = "is required with kube_state on this cluster: only the local cluster builds an image by itself"
        yield Problem("monitoring.kube_state_image", message)
    cluster: Cluster | None = sections.get("cluster")
    if monitoring.existing is not None and cluster is not None and monitoring.existing.namespace == cluster.namespace:
        message = (
            f"is {cluster.namespace!r}, this cluster's own namespace, where users' programs run, too; name that of the "
            f"Prometheus"
        )
        yield Problem("monitoring.existing.namespace", message)


def network_problems(sections: Sections) -> Iterator[Problem]:
    """What only network policies could hold to."""
    policies: NetworkPolicies | None = sections.get("network_policies")
    if policies is not None and not policies.enabled and "egress" in policies.model_fields_set:
        message = "has no effect: only network policies could enforce it, and network_policies.enabled is false"
        yield Problem("network_policies.egress", message)


def image_problems(sections: Sections) -> Iterator[Problem]:
    """What is in the jail's image."""
    images: Images | None = sections.get("images")
    slurm: Slurm | None = sections.get("slurm")
    if images is not None and slurm is not None and images.jail.cuda and slurm.version not in CUDA_VERSIONS:
        yield Problem("images.jail.cuda", NO_CUDA.format(version=slurm.version))
    jail: Jail | None = sections.get("jail")
    if images is not None and images.jail.cuda and jail and parse_bytes(jail.size) < parse_bytes(LEAST_WITH_CUDA):
        yield Problem("jail.size", f"{jail.size} is too small for a jail with CUDA (images.jail.cuda), which has 6.2 "
                      f"GB before anybody has written a file; at least {LEAST_WITH_CUDA}")  # fmt: skip


def limit_problems(sections: Sections) -> Iterator[Problem]:
    """Limits of what the cluster does not have."""
    licenses = sections.names("licenses")
    unknown = "worker_nodes" not in sections.valid
    there = {"gpu": has_gpus(sections) or unknown, "shard": has_shards(sections) or unknown}
    pools = [pool for pool in sections.get("worker_nodes").values() if pool.resources.gpus.count]
    types = frozenset(kind for pool in pools for kind in pool.gpu_types)
    if unknown or not all(pool.gpu_types for pool in pools):
        types = frozenset()
    for where, resource in named_resources(sections.get):
        yield from _resource(where, resource, licenses, there, types)


_GENERIC = {
    "gpu": "no pool has GPUs",
    "shard": "no pool has shares of GPUs (worker_nodes.<pool>.resources.gpus.shard)",
}
"""Generic resource -> what is said where no node has it."""


def _resource(
    where: str, resource: str, licenses: list[str], there: Mapping[str, bool], types: frozenset[str]
) -> Iterator[Problem]:
    """`types`: of the GPUs; none where some have no type that the stack file tells."""
    kind, _, name = resource.partition("/")
    if kind == "license" and name not in licenses:
        message = f"names {resource!r}, and slurmstack:licenses has no {name!r}; add it there, or remove this"
        yield Problem(where, message)
    generic, _, type_ = name.partition(":")
    if generic == "gpu" and type_ and types and type_ not in types:
        yield Problem(where, f"names {resource!r}: {unknown_name(type_, types, what='a type of GPU of any pool')}")
    elif kind == "gres" and not there.get(generic, False):
        what = _GENERIC.get(generic, "nodes have no generic resource but gpu and shard")
        yield Problem(where, f"names {resource!r}, and {what}; remove it")
