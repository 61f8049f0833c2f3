"""Partitions and pools that leave the stack while jobs run and wait in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from images.controller.configuration import config_hash
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import change, edited, kill_programs, status
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import HANG_SECONDS, wait_until
from tests.slurm.sandbox import DEFAULT_NODE_CONF, SlurmSandbox

pytestmark = pytest.mark.in_gate

GPU_NODES = "NodeSet=gpu Feature=gpu"
GPU = "PartitionName=gpu Nodes=gpu State=UP"
QUICK = "EnforcePartLimits=ALL\nSchedulerParameters=sched_min_interval=0,batch_sched_delay=0,bf_interval=1"


@pytest.fixture(scope="module")
def one(slurm_version: str) -> dict[str, str]:
    """A stack with the partition `main` over the pool `default`."""
    return minimal_config(slurm_version, QUICK)


@pytest.fixture(scope="module")
def two(slurm_version: str) -> dict[str, str]:
    """The same with a pool `gpu` and a partition of its own for it."""
    return minimal_config(slurm_version, f"{QUICK}\n{GPU_NODES}\n{GPU}")


@pytest.fixture(scope="module")
def sandbox(slurm_cluster: ClusterFactory, slurm_version: str, two: dict[str, str]) -> SlurmSandbox:
    """One node of each pool."""
    made = slurm_cluster(slurm_version, config=two, workers=1)
    made.start_worker_on("gpu-0", env={"NODE_CONF": DEFAULT_NODE_CONF.replace("default", "gpu")})
    made.wait_for_nodes(2)
    return made


@pytest.fixture
def cluster(sandbox: SlurmSandbox, two: dict[str, str]) -> Iterator[SlurmSandbox]:
    """Both partitions and no job."""
    if status(sandbox)["active"] != config_hash(two):
        change(sandbox, two)
    for pod in sandbox.pods.values():
        (pod.root / "tmp/go").unlink(missing_ok=True)
    sandbox.wait_for_nodes(2)
    yield sandbox
    sandbox.run("scancel --user=root")
    wait_until(lambda: not sandbox.run("squeue --noheader").stdout, sandbox.logs)


def submit(cluster: SlurmSandbox, *options: str) -> str:
    """A job that runs until it is told to `go` on the node where it is."""
    script = "touch /tmp/at-work-$SLURM_JOB_ID; while ! test -e /tmp/go; do sleep 0.1; done"
    done = cluster.run(["sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}"])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def go(cluster: SlurmSandbox) -> None:
    """Let all jobs end that run, and those that start."""
    for pod in cluster.pods.values():
        (pod.root / "tmp/go").touch()


def submit_and_wait(cluster: SlurmSandbox, *options: str) -> str:
    """A job that is at work: one whose start is under way when slurmctld reads its files is started again."""
    job = submit(cluster, *options)
    pods = cluster.pods.values()
    wait_until(lambda: any((pod.root / f"tmp/at-work-{job}").exists() for pod in pods), cluster.logs)
    return job


def shown(cluster: SlurmSandbox, job: str) -> list[dict[str, str]]:
    """What Slurm says of a job, or of each task of an array."""
    lines = cluster.run(f"scontrol --oneliner show job {job}").stdout.splitlines()
    return [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in lines]


def states(cluster: SlurmSandbox, *jobs: str) -> list[str]:
    return [found["JobState"] for job in jobs for found in shown(cluster, job)]


def wait_for_states(cluster: SlurmSandbox, wanted: str, *jobs: str) -> None:
    def reached() -> bool:
        return set(states(cluster, *jobs)) == {wanted}

    def why() -> str:
        return "\n".join([str(shown(cluster, job)) for job in jobs] + [cluster.logs()])

    wait_until(reached, why)


def partitions(cluster: SlurmSandbox) -> set[str]:
    return set(cluster.run("sinfo --noheader --format=%R").stdout.split())


def test_jobs_of_a_partition_that_leaves_run_on_over_restarts_and_then_it_goes(
    cluster: SlurmSandbox, one: dict[str, str]
) -> None:
    running = submit_and_wait(cluster, "--partition=gpu", "--ntasks=2")
    array = submit(cluster, "--partition=gpu", "--array=0-2%1")

    found = change(cluster, one)

    assert found["active"] == config_hash(one)
    refused = cluster.run("sbatch --partition=gpu --wrap true")
    assert "partition not available" in refused.stderr, refused.stderr
    wait_until(lambda: "partition gpu has left" in cluster.controller.log("config-agent"), cluster.logs)

    kill_programs(cluster, "slurmctld", "config-agent")
    (cluster.controller.root / "run/slurmstack/ready").unlink()
    cluster.start_controller_daemons(cluster.controller)
    wait_until(lambda: status(cluster)["active"] == config_hash(one), cluster.logs)
    assert states(cluster, running) == ["RUNNING"], cluster.logs()
    assert set(states(cluster, array)) == {"PENDING"}
    assert partitions(cluster) == {"main", "gpu"}

    go(cluster)

    wait_for_states(cluster, "COMPLETED", running, array)
    assert {found["Restarts"] for job in (running, array) for found in shown(cluster, job)} == {"0"}
    wait_until(lambda: partitions(cluster) == {"main"}, cluster.logs)
    wait_until(lambda: "no job is left of gpu" in cluster.controller.log("config-agent"), cluster.logs)
    assert status(cluster)["active"] == config_hash(one)


def test_pending_jobs_wait_visibly_where_the_nodes_have_left_too(cluster: SlurmSandbox, one: dict[str, str]) -> None:
    running = submit_and_wait(cluster, "--partition=gpu", "--ntasks=2")
    pending = submit(cluster, "--partition=gpu")
    change(cluster, one)

    leave = cluster.pods["gpu-0"].start_program("leave")
    wait_until(lambda: "DRAIN" in cluster.run("scontrol show node gpu-0").stdout, cluster.logs)
    go(cluster)
    wait_for_states(cluster, "COMPLETED", running)
    leave.wait(HANG_SECONDS)
    cluster.remove_pod("gpu-0")

    assert states(cluster, pending) == ["PENDING"]
    wait_until(lambda: shown(cluster, pending)[0]["Reason"] == "PartitionConfig", cluster.logs)
    assert "gpu" in partitions(cluster)
    # Slurm says "Resource temporarily unavailable" for some seconds after the node has gone.
    move = f"scontrol update jobid={pending} partition=main"
    wait_until(lambda: cluster.run(move).returncode == 0, cluster.logs)
    wait_for_states(cluster, "COMPLETED", pending)
    wait_until(lambda: partitions(cluster) == {"main"}, cluster.logs)

    cluster.start_worker_on("gpu-0", env={"NODE_CONF": DEFAULT_NODE_CONF.replace("default", "gpu")})


def test_a_pool_that_leaves_a_partition_ends_no_job(
    cluster: SlurmSandbox, one: dict[str, str], two: dict[str, str]
) -> None:
    wide = {**two, "slurm.conf": two["slurm.conf"].replace("Nodes=default", "Nodes=default,gpu").replace(GPU, "")}
    change(cluster, wide)
    running = submit_and_wait(cluster, "--partition=main", "--nodelist=gpu-0")

    change(cluster, one)

    assert states(cluster, running) == ["RUNNING"], cluster.logs()
    go(cluster)
    wait_for_states(cluster, "COMPLETED", running)
    assert shown(cluster, running)[0]["Restarts"] == "0"


def test_another_name_of_the_cluster_is_taken_back_and_the_jobs_run_on(
    cluster: SlurmSandbox, two: dict[str, str]
) -> None:
    running = submit_and_wait(cluster)
    cluster.set_config(edited(two, "ClusterName=other"))

    # It reads the name twice; each time Kubernetes starts the container that has ended.
    wait_until(lambda: "once more when it is up" in cluster.controller.log("config-agent"), cluster.logs)
    cluster.controller.start_program("slurmctld")
    wait_until(lambda: status(cluster)["rejected"], cluster.logs)
    assert "ended when it read this" in status(cluster)["rejected"]["message"]
    cluster.controller.start_program("slurmctld")
    wait_until(
        lambda: status(cluster)["pending"] is None and "is UP" in cluster.run("scontrol ping").stdout, cluster.logs
    )
    assert status(cluster)["active"] == config_hash(two)
    assert states(cluster, running) == ["RUNNING"], cluster.logs()
    go(cluster)
    wait_for_states(cluster, "COMPLETED", running)


def test_jobs_that_name_several_partitions_outlive_one_that_leaves(cluster: SlurmSandbox, one: dict[str, str]) -> None:
    """The queue shows a running one only where it runs, but slurmctld would end it with the other partition."""
    elsewhere = submit_and_wait(cluster, "--partition=main,gpu", "--ntasks=2")
    inside = submit_and_wait(cluster, "--partition=gpu", "--ntasks=2")
    pending = submit(cluster, "--partition=main,gpu", "--ntasks=2")
    change(cluster, one)
    assert cluster.run("sbatch --partition=gpu --wrap true").returncode != 0
    after = submit(cluster, "--partition=main,gpu", "--ntasks=2")
    assert shown(cluster, after)[0]["Partition"] == "main"

    cluster.run(f"scancel {inside} {pending}")
    wait_until(lambda: not cluster.run("squeue --noheader --partition=gpu").stdout, cluster.logs)
    # An agent that restarts looks at the queue at once, and has done so when it has taken another change.
    log = len(cluster.controller.log("config-agent"))
    kill_programs(cluster, "config-agent")
    cluster.controller.start_program("config-agent")
    wait_until(lambda: "while it has any (0)" in cluster.controller.log("config-agent")[log:], cluster.logs)
    change(cluster, edited(one, "MaxJobCount=4321"))

    assert states(cluster, elsewhere) == ["RUNNING"]
    assert partitions(cluster) == {"main", "gpu"}
    go(cluster)
    wait_for_states(cluster, "COMPLETED", elsewhere, after)
    wait_until(lambda: partitions(cluster) == {"main"}, cluster.logs)
