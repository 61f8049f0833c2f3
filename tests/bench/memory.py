"""What each control pod has in memory at rest, with two controllers, REST and the dashboard.

It is the working set by kubelet's figures (`metrics/resource`), by which Kubernetes evicts: without what the kernel
could give back at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from slurm.names import ACTIVE, CONTROLLER, LOGIN, WORKER
from tests.bench.cluster import WORKERS, Cluster
from tests.bench.row import Measuring

SECTIONS = {"rest": {"enabled": True}, "dashboard": {"enabled": True}}
REST_SECONDS = 60
READ_SECONDS = 20
"""Between two readings; kubelet reads more often than that."""

OTHERS = {WORKER, LOGIN}
"""Components whose pods are no control pods."""

USED = re.compile(
    r'^container_memory_working_set_bytes\{container="([^"]+)",namespace="([^"]+)",pod="([^"]+)"\} (\S+)',
    re.MULTILINE,
)
"""A line of kubelet's: container, namespace, pod, bytes."""


def memory(bench: Measuring, cluster: Cluster) -> None:
    """A row of each kind of pod; of several equal ones that of the largest."""
    controller = {**cluster.sections.get("controller", {}), "replicas": 2}
    cluster.sections = {**cluster.sections, **SECTIONS, "controller": controller}
    cluster.up()
    cluster.await_ready()
    cluster.await_rolled(*WORKERS)
    pods = {name: kind for name, pod in cluster.pods().items() if (kind := _kind(pod))}
    bench.say(f"all is left alone for {REST_SECONDS} s")
    time.sleep(REST_SECONDS)
    seen = []
    for _ in range(bench.times(3)):
        time.sleep(READ_SECONDS)
        seen.append(_read(cluster, pods))
    for kind in sorted(seen[0]):
        used = seen[-1][kind]
        note = ", ".join(f"{name} {used[name]:.0f}" for name in sorted(used, key=lambda name: -used[name]))
        samples = [sum(one[kind].values()) for one in seen]
        bench.take(f"memory at rest: {kind}", samples, unit="MiB", note=note)


def _kind(pod: Mapping[str, Any]) -> str:
    """What a row calls a pod; nothing where it has none."""
    labels = pod["metadata"]["labels"]
    component = str(labels["app.kubernetes.io/component"])
    if component == CONTROLLER:
        return f"{component}, {'active' if labels.get(ACTIVE) else 'standing by'}"
    return "" if component in OTHERS else component


def _read(cluster: Cluster, pods: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Kind of pod -> container -> MiB."""
    found: dict[str, dict[str, float]] = {name: {} for name in pods}
    for node in cluster.kubectl.items("nodes"):
        path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/metrics/resource"
        for container, namespace, pod, used in USED.findall(cluster.kubectl.run("get", "--raw", path).stdout):
            if namespace == cluster.namespace and pod in found:
                found[pod][container] = float(used) / 2**20
    assert all(found.values()), f"not read: {found}"
    by_size = sorted(found, key=lambda name: sum(found[name].values()))
    return {pods[name]: found[name] for name in by_size}
