"""The config agent with a real slurmctld: what a user sees when a configuration is changed, well or badly."""

from __future__ import annotations

import pytest

from config import load_config
from images.controller.configuration import config_hash
from slurm.conf import WEIGHTS_FILE, render, slurm_conf
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import activate, change, edited, status
from tests.slurm.minimal import STACK, minimal_config
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

pytestmark = pytest.mark.in_gate


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """A controller and one worker."""
    return slurm_cluster(slurm_version, workers=1)


@pytest.fixture
def good(cluster: SlurmSandbox, slurm_version: str) -> dict[str, str]:
    """The good configuration, in force."""
    files = minimal_config(slurm_version)
    cluster.set_config(files)
    wait_until(
        lambda: status(cluster)["active"] == config_hash(files), f"active: {cluster.controller.log('config-agent')}"
    )
    return files


BAD = {
    "SchedulerTpye=sched/backfill": "Parsing error at unrecognized key: SchedulerTpye",
    "KillWait=soon": 'KillWait value "soon" is not a valid number',
    "PartitionName=x Nodes=nosuchnode State=UP": 'lookup failure for node "nosuchnode"',
    "SchedulerType=sched/backfil": "sched/backfil",
    "TopologyPlugin=topology/tree": "topology.conf",
    "PartitionName=main Nodes=ALL": "duplicate entry for partition main",
}
"""Line of slurm.conf -> what Slurm says of it."""


@pytest.mark.in_gate("26.05")
def test_a_bad_configuration_is_rejected_with_slurms_own_message(cluster: SlurmSandbox, good: dict[str, str]) -> None:
    for line, message in BAD.items():
        found = change(cluster, edited(good, line))

        assert found["active"] == config_hash(good), line
        assert message in found["rejected"]["message"], line
        assert "/tmp" not in found["rejected"]["message"], line
    assert "is UP" in cluster.run("scontrol ping").stdout


@pytest.mark.in_gate("26.05")
def test_a_good_change_is_active_while_a_job_runs_on(cluster: SlurmSandbox, good: dict[str, str]) -> None:
    # Not only in slurmctld's list: a job whose start is under way when slurmctld reads its files is started again. Its
    # script begins before slurmd has told slurmctld that it did: hence the second.
    script = "sleep 1; touch /tmp/at-work-$SLURM_JOB_ID; sleep 600"
    job = cluster.run(f"sbatch --parsable --output=/dev/null --wrap '{script}'").stdout.strip()
    workers = [pod for name, pod in cluster.pods.items() if name.startswith("default")]
    wait_until(lambda: any((pod.root / f"tmp/at-work-{job}").exists() for pod in workers), "the job to be at work")

    files = edited(good, "MaxJobCount=4321")
    found = change(cluster, files)

    assert found["active"] == config_hash(files)
    assert "4321" in cluster.run("scontrol show config | grep MaxJobCount").stdout
    assert cluster.run(f"squeue -h -j {job} -o %t").stdout.strip() == "R", cluster.logs()
    cluster.run(f"scancel {job}")


def test_a_controller_whose_configuration_broke_starts_with_the_last_good_one(
    own_cluster: ClusterFactory, slurm_version: str
) -> None:
    good = minimal_config(slurm_version)
    sandbox = own_cluster(slurm_version, config=good, workers=0)
    sandbox.remove_pod("controller-0")
    sandbox.set_config(edited(good, "SchedulerTpye=x"))

    sandbox.start_controller()

    wait_until(lambda: status(sandbox)["active"] == config_hash(good), sandbox.logs)
    assert "SchedulerTpye" in status(sandbox)["rejected"]["message"]


def test_a_first_start_with_a_bad_configuration_waits_for_a_better_one(
    own_cluster: ClusterFactory, slurm_version: str
) -> None:
    good = minimal_config(slurm_version)
    sandbox = own_cluster(slurm_version, config=good, workers=0)
    sandbox.remove_pod("controller-0")
    sandbox.clear_state()
    sandbox.set_config(edited(good, "SchedulerTpye=x"))
    pod = sandbox.start_controller(daemons=False)
    pod.start_program("config-agent")
    pod.start_program("slurmctld")
    wait_until(lambda: "waiting for a corrected one" in pod.log("config-agent"), sandbox.logs)
    assert not (pod.root / "run/slurmstack/ready").exists()

    sandbox.set_config(good)

    wait_until(lambda: "is UP" in sandbox.run("scontrol ping").stdout, sandbox.logs)
    wait_until(lambda: status(sandbox)["active"] == config_hash(good), sandbox.logs)


def weighing(version: str, **weights: int) -> dict[str, str]:
    """Two pools below one partition, with these weights."""
    pool = STACK["worker_nodes"]["default"]
    pools = {name: {**pool, "weight": weights.get(name)} for name in ("default", "early")}
    partitions = {"std.q": {"pools": [*pools]}, "STD.Q": {"pools": ["default"]}}
    stack = load_config({**STACK, "worker_nodes": pools, "partitions": partitions})
    base = minimal_config(version)["slurm.conf"].splitlines()
    lines = [
        line for line in slurm_conf(stack).splitlines() if line.startswith(("NodeSet", "Part")) and line not in base
    ]
    files = {name: text for name, text in render(stack).items() if name == WEIGHTS_FILE}
    return minimal_config(version, "\n".join(lines), **files)


def test_of_the_nodes_of_a_partition_a_job_gets_that_of_the_smallest_weight_which_changes_in_place(
    own_cluster: ClusterFactory, slurm_version: str
) -> None:
    sandbox = own_cluster(slurm_version, config=weighing(slurm_version, default=20), workers=1)
    sandbox.start_worker_on("early-0", env={"NODE_CONF": "CPUs=2 RealMemory=1000 Feature=early"})
    sandbox.wait_for_nodes(2)

    def await_weights(default: int, early: int) -> None:
        show = "scontrol show nodes --oneliner | grep -oE '^NodeName=[^ ]+| Weight=[0-9]+'"
        wanted = ["NodeName=default-0", f"Weight={default}", "NodeName=early-0", f"Weight={early}"]
        wait_until(lambda: sandbox.run(show).stdout.split() == wanted, lambda: sandbox.controller.log("config-agent"))

    await_weights(20, 1)
    assert sandbox.run("cd / && srun --partition=std.q hostname").stdout == "early-0\n"
    activate(sandbox, weighing(slurm_version, early=30))
    await_weights(1, 30)
    assert sandbox.run("cd / && srun --partition=std.q hostname").stdout == "default-0\n"


@pytest.mark.in_gate("26.05")
def test_a_slurmctld_that_missed_the_word_to_end_hears_it_again_and_saves_its_state(
    slurm_cluster: ClusterFactory, slurm_version: str
) -> None:
    """As one does that is reading its configuration anew. kubelet, which is not here, says it once."""
    controller = slurm_cluster(slurm_version, workers=0).controller
    assert "Saving all slurm state" not in controller.log("slurmctld")
    assert controller.run("/usr/libexec/slurmstack/leave").returncode == 0
    wait_until(lambda: not controller.run("pgrep -x slurmctld").stdout, "slurmctld's end")
    assert "Saving all slurm state" in controller.log("slurmctld")
