"""Memory that jobs get unasked, and that no job gets: our slurm.conf with real daemons, on nodes of two kinds."""

from __future__ import annotations

import re
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
SHARE = {name: REAL[name] // pool["resources"]["cpus"] for name, pool in POOLS.items()}
"""MiB of one CPU."""

AS_ALICE = "cd /tmp && setpriv --reuid=10001 --regid=10001 --clear-groups"


def sections(version: str, **pools: Any) -> dict[str, Any]:
    """A partition for each pool and one for both. `pools`: instead of those above."""
    found = stacks.dev() | {
        "worker_nodes": POOLS | pools,
        "partitions": {
            "both": {"pools": [*POOLS], "default": True},
            **{name: {"pools": [name]} for name in POOLS},
        },
        "slurm": {"version": version},
        "accounting": {"enabled": False},
    }
    return {name: section for name, section in found.items() if name != "health"}


@pytest.fixture(scope="module")
def running(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """A node of each pool."""
    config = load_config(sections(slurm_version))
    sandbox = slurm_cluster(slurm_version, config=render(config), workers=0)
    for name, pool in config.worker_nodes.items():
        sandbox.start_worker_on(f"{name}-0", env={"NODE_CONF": node_conf(name, pool)})
    add_accounts(identity({"alice": 10001}, "/tmp"), *(pod.root for pod in sandbox.pods.values()))
    return sandbox


@pytest.fixture
def cluster(running: SlurmSandbox) -> SlurmSandbox:
    """The cluster without jobs."""
    running.run("scancel --user=alice")
    wait_until(lambda: not running.run("squeue --noheader").stdout.strip(), running.logs)
    running.wait_for_nodes(2)
    return running


def sbatch(cluster: SlurmSandbox, options: str) -> subprocess.CompletedProcess[str]:
    return cluster.run(f"{AS_ALICE} sbatch --parsable --output=/dev/null {options} --wrap 'sleep 600'")


def submit(cluster: SlurmSandbox, options: str) -> str:
    done = sbatch(cluster, options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def await_running(cluster: SlurmSandbox, *jobs: str) -> None:
    for job in jobs:
        cluster.wait_for_job(job, "RUNNING")


def memory_of(cluster: SlurmSandbox, job: str) -> int:
    """MiB that a running job has in all."""
    found = re.search(r"mem=(\d+)(M|G)", cluster.job(job)["AllocTRES"])
    assert found, cluster.job(job)["AllocTRES"]
    return int(found[1]) * (1024 if found[2] == "G" else 1)


@pytest.mark.parametrize("pool", POOLS)
def test_as_many_jobs_of_one_cpu_run_on_a_node_as_it_has_cpus(cluster: SlurmSandbox, pool: str) -> None:
    cpus = POOLS[pool]["resources"]["cpus"]
    jobs = [submit(cluster, f"--partition={pool}") for _ in range(cpus)]
    await_running(cluster, *jobs)
    assert [memory_of(cluster, job) for job in jobs] == [SHARE[pool]] * cpus
    waits = submit(cluster, f"--partition={pool}")
    wait_until(lambda: cluster.job(waits).get("Reason") in {"Resources", "Priority"}, cluster.logs)


@pytest.mark.parametrize("full", POOLS)
def test_a_job_that_names_several_partitions_has_the_memory_of_the_one_in_which_it_starts(
    cluster: SlurmSandbox, full: str
) -> None:
    await_running(cluster, submit(cluster, f"--partition={full} --exclusive"))
    (free,) = set(POOLS) - {full}
    job = submit(cluster, "--partition=small,large")
    await_running(cluster, job)
    assert cluster.job(job)["NodeList"] == f"{free}-0"
    assert memory_of(cluster, job) == SHARE[free]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--partition=small --mem={over_small}M", "Memory specification can not be satisfied"),
        ("--partition=small,large --mem={over_all}M", "Memory required by task is not available"),
    ],
)
def test_more_memory_than_a_node_of_the_partition_has_is_refused_at_submission(
    cluster: SlurmSandbox, options: str, message: str
) -> None:
    done = sbatch(cluster, options.format(over_small=REAL["small"] + 1, over_all=REAL["large"] + 1))
    assert done.returncode != 0, done.stdout
    assert message in done.stderr
    assert not cluster.run("squeue --noheader").stdout.strip()
