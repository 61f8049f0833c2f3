"""Commands that people call all day, from start to exit."""

from __future__ import annotations

from tests.bench.cluster import Cluster
from tests.bench.figures import Bench, timed
from tests.e2e.harness import slurmstack


def commands(bench: Bench, cluster: Cluster) -> None:
    """On a cluster of the least that there is."""
    config = ("--config", str(cluster.file))
    key = ("--key", str(cluster.directory / "key"))
    for name, goal, arguments in (
        ("slurmstack status", 1.0, ("status", *config)),
        ("slurmstack login -- true", 0.8, ("login", "alice", *key, *config, "--", "true")),
    ):
        bench.measure(name, lambda _: timed(lambda: slurmstack(*arguments, cold=True)), runs=7, goal=goal)  # noqa: B023
