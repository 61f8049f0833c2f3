"""Commands that people call all day, from start to exit."""

from __future__ import annotations

from functools import partial

from tests.bench.cluster import WORKERS, Cluster
from tests.bench.figures import Bench, timed
from tests.e2e.harness import slurmstack, wait_until

MONITORING = {
    "rest": {"enabled": True},
    "dashboard": {"enabled": True},
    "monitoring": {"install": True, "kube_state": True, "storage": "1Gi"},
}


def commands(bench: Bench, cluster: Cluster) -> None:
    """On a cluster of the least that there is."""
    config = ("--config", str(cluster.file))
    key = ("--key", str(cluster.directory / "key"))
    for name, goal, arguments in (
        ("slurmstack status", 1.0, ("status", *config)),
        ("slurmstack login -- true", 0.8, ("login", "alice", *key, *config, "--", "true")),
    ):
        bench.measure(name, lambda _: timed(lambda: slurmstack(*arguments, cold=True)), runs=7, goal=goal)  # noqa: B023


def look(bench: Bench, cluster: Cluster) -> None:
    """On an idle cluster with all there is to look at it. Each finds all well."""
    cluster.sections = {**cluster.sections, **MONITORING}
    cluster.up()
    cluster.await_rolled(*WORKERS)
    for command, goal in (("status", 1.0), ("doctor", 5.0)):
        ask = partial(slurmstack, command, "--config", str(cluster.file), cold=True)
        wait_until(lambda: ask(check=False).returncode == 0, f"{command}: all is well", timeout=180)  # noqa: B023
        bench.measure(f"slurmstack {command}, with monitoring", lambda _: timed(ask), runs=9, goal=goal)  # noqa: B023
