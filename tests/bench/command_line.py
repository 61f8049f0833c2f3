"""Commands that people call all day, from start to exit, and `render` for stacks of several sizes."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from tests.bench.cluster import Cluster
from tests.bench.row import Measuring, timed
from tests.e2e.harness import slurmstack
from tests.stacks import with_pools

RENDER_GOALS = {1: 5.0, 10: 5.0, 100: 3.5}
"""Seconds by number of pools."""


def render(bench: Measuring) -> None:
    """By number of pools. Needs no cluster."""
    with tempfile.TemporaryDirectory() as directory:
        for pools, goal in RENDER_GOALS.items():
            file, output = Path(directory) / f"Pulumi.pools{pools}.yaml", Path(directory) / f"out{pools}"
            document = {"config": {f"slurmstack:{name}": value for name, value in with_pools(pools).items()}}
            file.write_text(json.dumps(document), encoding="utf-8")
            arguments = ("render", "--config", str(file), "--output", str(output))
            name = f"render of {pools} pool{'s' if pools > 1 else ''}"
            row = bench.measure(name, lambda _: timed(lambda: slurmstack(*arguments, cold=True)), runs=5, goal=goal)  # noqa: B023
            row.note = f"{len(list(output.glob('*.yaml')))} objects"


def command_line(bench: Measuring, cluster: Cluster) -> None:
    """What asks the cluster, and what only loads."""
    config = ("--config", str(cluster.file))
    key = ("--key", str(cluster.directory / "key"))
    for name, goal, arguments in (
        ("slurmstack status", 1.0, ("status", *config)),
        ("slurmstack login -- true", 0.8, ("login", "alice", *key, *config, "--", "true")),
        ("slurmstack --help", 0.4, ("--help",)),
    ):
        bench.measure(name, lambda _: timed(lambda: slurmstack(*arguments, cold=True)), runs=7, goal=goal)  # noqa: B023
