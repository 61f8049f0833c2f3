"""What looking at a cluster takes (status, doctor, the dashboard's page), and what all its monitoring costs at rest."""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Mapping
from functools import partial

from tests.bench.cluster import WORKERS, Cluster
from tests.bench.row import Measuring, timed
from tests.e2e.harness import slurmstack, wait_until

SECTIONS = {
    "rest": {"enabled": True},
    "dashboard": {"enabled": True},
    "monitoring": {"install": True, "nodes": True, "kube_state": True, "storage": "1Gi"},
}

REST_SECONDS = 150
"""Of one look at CPU time: five readings of Prometheus' and as many rounds of the exporter's."""

CONTAINERS = ("exporter", "prometheus", "alertmanager", "node-exporter", "kube-state", "dashboard")
"""Containers of monitoring by their names. Besides there is munged in the exporter's pod."""

JOB_FIGURES = "figures of jobs"

USED = re.compile(
    r'^container_cpu_usage_seconds_total\{container="([^"]+)",namespace="([^"]+)",pod="([^"]+)"\} (\S+) (\d+)$',
    re.MULTILINE,
)
"""A line of kubelet's: container, namespace, pod, CPU seconds, and when they were read, in milliseconds."""

SERVERS = """
import glob, os
used = 0
for process in glob.glob("/proc/[0-9]*"):
    try:
        status, stat = (open(f"{process}/{name}").read() for name in ("status", "stat"))
    except OSError:
        continue
    if "\\nUid:\\t65534\\t" in status:
        used += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
print(used / os.sysconf("SC_CLK_TCK"))
"""
"""CPU seconds of what serves the figures of jobs, a process of nobody's in slurmd's container."""


def look(bench: Measuring, cluster: Cluster) -> None:
    """On an idle cluster with all there is to look at it."""
    cluster.sections = {**cluster.sections, **SECTIONS}
    cluster.up()
    cluster.await_rolled(*WORKERS)
    _ask(bench, cluster, "status", 1.0)
    _ask(bench, cluster, "doctor", 5.0)
    _page(bench, cluster)
    _at_rest(bench, cluster)


def _ask(bench: Measuring, cluster: Cluster, command: str, goal: float) -> None:
    """A command that finds all well, from start to exit."""
    ask = partial(slurmstack, command, "--config", str(cluster.file), cold=True)
    wait_until(lambda: ask(check=False).returncode == 0, f"{command}: all is well", timeout=180)
    bench.measure(f"slurmstack {command}, with monitoring", lambda _: timed(ask), runs=9, goal=goal)


def _page(bench: Measuring, cluster: Cluster) -> None:
    """As a user on a login node has it: a connection with TLS of its own, and plots where Prometheus has figures."""
    (secret,) = cluster.kubectl.items("secret", "rest-tls", "-n", cluster.namespace)
    authority = base64.b64decode(secret["data"]["ca.crt"]).decode()
    cluster.as_alice(f"cat > ca.pem <<'END'\n{authority}\nEND\nscontrol token lifespan=3600 > token")
    cookie = '"Cookie: __Secure-slurm-token=$(sed s/SLURM_JWT=// token)"'
    ask = f"curl --silent --show-error --fail --cacert ca.pem -H {cookie} https://rest:6820/dashboard/"
    wait_until(lambda: "<figure>" in cluster.as_alice(ask, check=False), "the page has plots", timeout=180)
    timing = f"{ask} --output page --write-out '%{{time_total}}'"
    row = bench.measure("the dashboard's page", lambda _: float(cluster.as_alice(timing)), runs=9, goal=0.3)
    row.note = f"{int(cluster.as_alice('stat --format=%s page')) / 1000:.0f} kB"


def _at_rest(bench: Measuring, cluster: Cluster) -> None:
    """Nobody looks: Prometheus reads every 30 s, and the exporter asks Slurm as often."""
    seen = []
    for _ in range(bench.times(3)):
        bench.say(f"all is left alone for {REST_SECONDS} s")
        seen.append(_spent(cluster))
    for name in seen[0]:
        note = f"of {len(WORKERS)} together" if name in {"node-exporter", JOB_FIGURES} else ""
        bench.take(f"at rest, CPU seconds a minute: {name}", [one[name] for one in seen], note=note)
    bench.take("at rest, CPU seconds a minute: all of monitoring", [sum(one.values()) for one in seen])


def _spent(cluster: Cluster) -> dict[str, float]:
    """CPU seconds a minute of each part of monitoring, which waits for a while."""
    before, servers, started = _containers(cluster), _servers(cluster), time.monotonic()
    time.sleep(REST_SECONDS)
    used = {JOB_FIGURES: (_servers(cluster) - servers) * 60 / (time.monotonic() - started)}
    after = _containers(cluster)
    assert before.keys() == after.keys(), f"other pods: {before.keys() ^ after.keys()}"
    for (pod, container), (seconds, at) in after.items():
        began, since = before[pod, container]
        name = f"{container} of {pod.partition('-')[0]}" if container == "munged" else container
        used[name] = used.get(name, 0.0) + (seconds - began) * 60 / (at - since)
    return used


def _containers(cluster: Cluster) -> Mapping[tuple[str, str], tuple[float, float]]:
    """(pod, container) of monitoring -> its CPU seconds, and when kubelet has read them."""
    found = {}
    for node in cluster.kubectl.items("nodes"):
        path = f"/api/v1/nodes/{node['metadata']['name']}/proxy/metrics/resource"
        for container, namespace, pod, used, at in USED.findall(cluster.kubectl.run("get", "--raw", path).stdout):
            ours = container in CONTAINERS or (container == "munged" and pod.startswith("exporter-"))
            if namespace == cluster.namespace and ours:
                found[pod, container] = (float(used), int(at) / 1000)
    assert {container for _, container in found} >= set(CONTAINERS), f"not read: {sorted(found)}"
    return found


def _servers(cluster: Cluster) -> float:
    """CPU seconds of what serves the figures of jobs on all workers, which kubelet counts with slurmd."""
    return sum(float(cluster.exec(node, "python3", "-c", SERVERS, container="slurmd")) for node in WORKERS)
