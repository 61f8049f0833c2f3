"""What `confinement: required` takes that the stack file itself says."""

from __future__ import annotations

from collections.abc import Iterator

from config.base import parse_cpus
from config.cluster import Sections
from config.errors import Problem
from config.sections.cloud import Cloud


def confinement_problems(sections: Sections) -> Iterator[Problem]:
    """Cores are held where Kubernetes has given them all to the pod: a worker that shares them would not start."""
    cloud: Cloud | None = sections.get("cloud")
    for name, pool in sections.get("worker_nodes").items():
        resources = pool.resources
        if pool.confinement != "required" or not pool.confines:
            continue
        if resources.cpu_request is not None and parse_cpus(resources.cpu_request) < resources.cpus:
            why = f"a cpu_request of {resources.cpu_request} leaves CPUs to other pods"
        elif resources.cpu_request is None and cloud is not None and cloud.is_local:
            why = "workers of the local cluster share the machine's CPUs unless cpu_request says otherwise"
        else:
            continue
        yield Problem(
            f"worker_nodes.{name}.confinement",
            f"is required, and {why}; set cpu_request to at least cpus, {resources.cpus}, or confinement: auto",
        )
