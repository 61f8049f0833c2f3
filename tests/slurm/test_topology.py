"""Slurm's switch tree with real daemons: from labels of Kubernetes nodes to where jobs run."""

from __future__ import annotations

import pytest

from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import kill_programs
from tests.slurm.kubernetes import ENVIRONMENT, KubernetesSandbox
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import wait_until
from tests.slurm.switches import LABELS_FILE, NODES, TREE, leaves_of

pytestmark = pytest.mark.soak

FOUR = [f"default-{number}" for number in range(4)]


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> KubernetesSandbox:
    """Four workers below two switches, the even ones below `a`."""
    config = minimal_config(slurm_version, TREE, **LABELS_FILE)
    return slurm_cluster(slurm_version, config=config, workers=4, nodes=NODES, kind=KubernetesSandbox)


@pytest.fixture
def four(cluster: KubernetesSandbox) -> KubernetesSandbox:
    """No jobs, and the first four nodes idle in their places. There may be more nodes, from other tests."""
    cluster.run("scancel --state=pending; scancel --state=running")
    for name, labels in NODES.items():
        cluster.label(name, **labels)
    await_leaves(cluster, {number: "core.a" if number % 2 == 0 else "core.b" for number in range(4)})
    cluster.wait_for_idle(*FOUR)
    return cluster


def leaves(cluster: KubernetesSandbox) -> dict[int, str]:
    """Leaf switch of each node, by the node's number."""
    return {int(name.removeprefix("default-")): leaf for name, leaf in leaves_of(cluster).items()}


def await_leaves(cluster: KubernetesSandbox, wanted: dict[int, str]) -> None:
    """Wait until these nodes are shown below these switches."""
    try:
        wait_until(lambda: wanted.items() <= leaves(cluster).items(), f"leaves {wanted}")
    except AssertionError as error:
        raise AssertionError(f"{error}; there are {leaves(cluster)}\n{cluster.logs()}") from None


def state(cluster: KubernetesSandbox, job: str) -> str:
    """`RUNNING`, `COMPLETED`, ..."""
    shown = cluster.run(f"scontrol show job {job}").stdout
    return next(word.partition("=")[2] for word in shown.split() if word.startswith("JobState="))


def submit(cluster: KubernetesSandbox, command: str, *options: str) -> str:
    """Id of a new batch job."""
    done = cluster.run(f"sbatch --parsable -o /dev/null {' '.join(options)} --wrap '{command}'")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_job_of_two_nodes_gets_one_switch(four: KubernetesSandbox) -> None:
    """The nodes in the order of their names would be of two switches."""
    submit(four, "sleep 60", "-w", "default-0", "--exclusive")
    wait_until(lambda: four.run("squeue -h -o %t").stdout.strip() == "R", "the job to run")

    plain = four.run("srun -N2 hostname")
    asked = four.run("srun -N2 --switches=1 hostname")

    assert sorted(plain.stdout.split()) == ["default-1", "default-3"], four.logs()
    assert sorted(asked.stdout.split()) == ["default-1", "default-3"]


def test_a_node_without_labels_runs_jobs_from_a_switch_of_its_own(four: KubernetesSandbox) -> None:
    four.start_worker("default-4")

    await_leaves(four, {4: "unknown"})
    four.wait_for_idle("default-4")
    assert four.run("srun -N2 -w default-[3-4] hostname").returncode == 0


def test_a_queued_job_gets_nodes_that_come_later_and_is_never_put_aside(four: KubernetesSandbox) -> None:
    """Slurm puts a job aside for good when it tries to use a node that is in no switch."""
    nodes = len(leaves(four))
    job = submit(four, "true", f"-N{nodes}", "--hold")
    four.run("scontrol update nodename=default-3 state=down reason=test; scontrol delete nodename=default-3")
    four.remove_pod("default-3")
    four.run(f"scontrol release {job}")

    # In other order and on other machines, so that Slurm's numbers of the nodes are not the old ones either.
    four.start_worker("default-5", on="node-0")
    four.start_worker("default-3")

    wait_until(lambda: state(four, job) == "COMPLETED", f"the job: {four.run('squeue').stdout}")
    # The job needs no more nodes than there were, so it may be done before the other of the two is in the tree.
    wait_until(lambda: leaves(four).get(5) == "core.a", f"default-5 under core.a: {leaves(four)}")


def test_without_the_api_the_tree_stays_and_new_nodes_still_take_jobs(four: KubernetesSandbox) -> None:
    four.api_down(down=True)
    try:
        four.place("default-6", "node-0")
        four.start_worker("default-6", on="node-0")
        four.wait_for_idle("default-6")
        assert {6: "unknown", 0: "core.a", 1: "core.b"}.items() <= leaves(four).items()
        assert four.run("srun -w default-6 hostname").stdout.strip() == "default-6"
    finally:
        four.api_down(down=False)
    await_leaves(four, {6: "core.a"})


def test_a_controller_that_restarts_has_the_tree_at_once(four: KubernetesSandbox) -> None:
    tree = leaves(four)
    kill_programs(four, "slurmctld", "config-agent")
    wait_until(lambda: "is UP" not in four.run("scontrol ping").stdout, "slurmctld to be gone")
    four.api_down(down=True)
    try:
        four.controller.start_program("config-agent", ENVIRONMENT)
        four.controller.start_program("slurmctld")
        wait_until(lambda: "is UP" in four.run("scontrol ping").stdout, four.logs)
        assert leaves(four) == tree
        four.wait_for_idle(*FOUR)
        assert four.run("srun -N4 hostname").returncode == 0
    finally:
        four.api_down(down=False)
