"""Slurm's switch tree with real daemons: it follows pods that come, and stays where who asks for it is away.

From labels of Kubernetes nodes to where jobs run: tests/e2e/test_topology.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import kill_programs
from tests.slurm.kubernetes import ENVIRONMENT, KubernetesSandbox
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import wait_until
from tests.slurm.switches import LABELS_FILE, NODES, TREE, leaves_of

pytestmark = pytest.mark.soak

FOUR = {f"default-{number}": f"core.{'ab'[number % 2]}" for number in range(4)}


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> KubernetesSandbox:
    """Four workers below two switches, the even ones below `a`."""
    config = minimal_config(slurm_version, TREE, **LABELS_FILE)
    return slurm_cluster(slurm_version, config=config, workers=4, nodes=NODES, kind=KubernetesSandbox)


@pytest.fixture
def four(cluster: KubernetesSandbox) -> KubernetesSandbox:
    """No jobs, and the first four nodes idle in their places. There may be more nodes, from other tests."""
    cluster.run("scancel --state=pending; scancel --state=running")
    await_leaves(cluster, FOUR)
    cluster.wait_for_idle(*FOUR)
    return cluster


def await_leaves(cluster: KubernetesSandbox, wanted: dict[str, str]) -> None:
    """Wait until these nodes are shown below these switches."""
    wait_until(
        lambda: wanted.items() <= leaves_of(cluster).items(),
        lambda: f"leaves {wanted}; there are {leaves_of(cluster)}\n{cluster.logs()}",
    )


@contextmanager
def without_api(cluster: KubernetesSandbox) -> Iterator[None]:
    """It answers nothing."""
    assert cluster.api is not None
    cluster.api.down = True
    try:
        yield
    finally:
        cluster.api.down = False


def test_a_queued_job_gets_nodes_that_come_later_and_is_never_put_aside(four: KubernetesSandbox) -> None:
    """Slurm puts a job aside for good when it tries to use a node that is in no switch."""
    nodes = len(leaves_of(four))
    job = four.run(f"sbatch --parsable -o /dev/null -N{nodes} --hold --wrap true").stdout.strip()
    four.run("scontrol update nodename=default-3 state=down reason=test; scontrol delete nodename=default-3")
    four.remove_pod("default-3")
    four.run(f"scontrol release {job}")

    # In other order and on other machines, so that Slurm's numbers of the nodes are not the old ones either.
    four.start_worker("default-5", on="node-0")
    four.start_worker("default-3")

    four.wait_for_job(job, "COMPLETED")
    # The job needs no more nodes than there were, so it may be done before the other of the two is in the tree.
    await_leaves(four, {"default-5": "core.a"})


def test_a_controller_that_restarts_has_the_tree_at_once(four: KubernetesSandbox) -> None:
    tree = leaves_of(four)
    kill_programs(four, "slurmctld", "config-agent")
    wait_until(lambda: "is UP" not in four.run("scontrol ping").stdout, "slurmctld to be gone")
    with without_api(four):
        four.controller.start_program("config-agent", ENVIRONMENT)
        four.controller.start_program("slurmctld")
        wait_until(lambda: "is UP" in four.run("scontrol ping").stdout, four.logs)
        assert leaves_of(four) == tree
        four.wait_for_idle(*FOUR)
        assert four.run("srun -N4 hostname").returncode == 0
