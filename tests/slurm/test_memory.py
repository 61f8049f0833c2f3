"""Memory that jobs get unasked, and that no job gets: our slurm.conf with real daemons, on nodes of two kinds."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from config import load_config
from slurm.conf import render
from slurm.sizing import node_conf, real_memory_mib
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import add_accounts, identity
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

POOLS: dict[str, Any] = {
    "small": {"size": 1, "resources": {"cpus": 4, "memory": "1Gi"}},
    "large": {"size": 1, "resources": {"cpus": 2, "memory": "3Gi"}},
}
REAL = {name: real_memory_mib(pool["resources"]["memory"]) for name, pool in POOLS.items()}


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """A node of each pool, with a partition of its own."""
    sections = stacks.dev() | {
        "worker_nodes": POOLS,
        "partitions": {name: {"pools": [name]} for name in POOLS},
        "slurm": {"version": slurm_version},
        "accounting": {"enabled": False},
    }
    config = load_config(sections)
    sandbox = slurm_cluster(slurm_version, config=render(config), workers=0)
    for name, pool in config.worker_nodes.items():
        sandbox.start_worker_on(f"{name}-0", env={"NODE_CONF": node_conf(name, pool)})
    add_accounts(identity({"alice": 10001}, "/tmp"), *(pod.root for pod in sandbox.pods.values()))
    sandbox.wait_for_nodes(2)
    return sandbox


def sbatch(cluster: SlurmSandbox, options: str) -> subprocess.CompletedProcess[str]:
    as_alice = "cd /tmp && setpriv --reuid=10001 --regid=10001 --clear-groups"
    return cluster.run(f"{as_alice} sbatch --parsable --output=/dev/null {options} --wrap 'sleep 600'")


def started(cluster: SlurmSandbox, options: str) -> dict[str, str]:
    """What slurmctld has of a job that runs."""
    done = sbatch(cluster, options)
    assert done.returncode == 0, done.stderr
    cluster.wait_for_job(done.stdout.strip(), "RUNNING")
    return cluster.job(done.stdout.strip())


@pytest.mark.parametrize("full", POOLS)
def test_a_job_that_names_several_partitions_has_the_memory_of_the_one_in_which_it_starts(
    cluster: SlurmSandbox, full: str
) -> None:
    """As many MiB for each CPU as the nodes of that partition have."""
    started(cluster, f"--partition={full} --exclusive")
    (free,) = set(POOLS) - {full}
    job = started(cluster, "--partition=small,large")
    assert job["NodeList"] == f"{free}-0"
    assert f"mem={REAL[free] // POOLS[free]['resources']['cpus']}M" in job["AllocTRES"]
    cluster.run("scancel --user=alice")
    wait_until(lambda: not cluster.run("squeue --noheader").stdout.strip(), cluster.logs)
    cluster.wait_for_nodes(2)


def test_more_memory_than_a_node_of_the_partition_has_is_refused_at_submission(cluster: SlurmSandbox) -> None:
    for partitions, most, message in (
        ("small", REAL["small"], "Memory specification can not be satisfied"),
        ("small,large", REAL["large"], "Memory required by task is not available"),
    ):
        done = sbatch(cluster, f"--partition={partitions} --mem={most + 1}M")
        assert done.returncode != 0, done.stdout
        assert message in done.stderr
