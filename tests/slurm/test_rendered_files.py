"""The files that we render, loaded by the real daemons of both Slurm versions."""

from __future__ import annotations

from typing import Any

import pytest

from config import load_config
from slurm.conf import config_hash, render, settings_of, slurmdbd_conf
from slurm.sizing import node_conf
from tests import stacks
from tests.slurm.accounting import AccountingSandbox
from tests.slurm.cluster import ClusterFactory

pytestmark = pytest.mark.in_gate("26.05")

SECTIONS = stacks.with_change(stacks.dev(), "worker_nodes.default.features", ["avx2"])
"""The development stack, with a feature."""


def rendered(sections: dict[str, Any], version: str) -> dict[str, str]:
    """Files of a stack with another Slurm version, without accounts of real machines."""
    return render(load_config(stacks.with_change(sections, "slurm.version", version)))


class RenderedSandbox(AccountingSandbox):
    """Everything with the files of a stack, slurmdbd too, which ends on a key that it does not know."""

    slurmdbd_settings = settings_of(slurmdbd_conf(load_config(SECTIONS)))


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> RenderedSandbox:
    """The development stack with its files as they are rendered."""
    pool = node_conf("default", load_config(SECTIONS).worker_nodes["default"])
    config = rendered(SECTIONS, slurm_version)
    return slurm_cluster(slurm_version, config=config, workers=2, node_conf=pool, kind=RenderedSandbox)


def test_the_daemons_take_the_development_stack_without_a_complaint(
    cluster: RenderedSandbox, slurm_version: str
) -> None:
    log = cluster.controller.log("config-agent")
    assert f"configuration {config_hash(rendered(SECTIONS, slurm_version))} is active" in log
    assert "complains" not in log, log
    limits = "rl_table_size=65536,rl_bucket_size=1000,rl_refill_rate=200"
    assert limits in cluster.controller.log("slurmctld"), "requests of one user are bound"


def test_nodes_register_with_what_the_stack_file_says_and_run_a_job(cluster: RenderedSandbox) -> None:
    shown = cluster.run("sinfo --noheader --Node --format='%N %c %m %f %P'").stdout.splitlines()
    assert [line.split() for line in shown] == [
        [f"default-{n}", "2", "1920", "default,avx2", "main*"] for n in range(2)
    ]
    # Jobs of root are refused on purpose, so the job is another user's.
    done = cluster.run("setpriv --reuid=nobody --regid=nogroup --clear-groups srun -N2 hostname", pod="default-0")
    assert sorted(done.stdout.split()) == ["default-0", "default-1"], done.stderr + cluster.logs()
    assert "Root" in cluster.run("srun hostname").stderr or cluster.run("srun hostname").returncode != 0


def test_slurm_says_what_every_pool_requires_and_a_worker_that_holds_nothing_yet_goes_on(
    own_cluster: ClusterFactory, slurm_version: str
) -> None:
    """As when a pool is changed to that: a slurmd that takes the cluster's plugins ends, and with it its jobs."""
    pool = node_conf("default", load_config(SECTIONS).worker_nodes["default"])
    wanted = rendered(stacks.with_change(SECTIONS, "worker_nodes.default.confinement", "required"), slurm_version)
    sandbox = own_cluster(slurm_version, kind=RenderedSandbox, config=wanted, workers=1, node_conf=pool)
    shown = sandbox.run("scontrol show config").stdout
    assert "ProctrackType           = proctrack/cgroup\n" in shown
    assert "task/cgroup" in shown
    done = sandbox.run("setpriv --reuid=nobody --regid=nogroup --clear-groups srun hostname", pod="default-0")
    assert done.stdout == "default-0\n", done.stderr + sandbox.logs()


def test_pools_without_nodes_and_gpu_pools_are_fine_for_slurmctld(
    own_cluster: ClusterFactory, slurm_version: str
) -> None:
    stack = stacks.with_change(stacks.existing(), "worker_nodes.gpu.resources.gpus", {"count": 8, "shard": 32})
    wanted = rendered(stack, slurm_version)
    sandbox = own_cluster(slurm_version, kind=RenderedSandbox, config=wanted, workers=0)
    partitions = sandbox.run("scontrol show partition --oneliner").stdout
    assert "PartitionName=main" in partitions
    assert "PartitionName=gpu" in partitions
    assert "PriorityTier=10" in partitions
    assert "GresTypes               = gpu,shard" in sandbox.run("scontrol show config").stdout
