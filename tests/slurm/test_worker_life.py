"""A worker's start and end with real daemons: registration, draining, waiting for jobs, deleting the record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.slurm.cluster import ClusterFactory
from tests.slurm.pod import LIBEXEC, wait_until
from tests.slurm.sandbox import SlurmSandbox

pytestmark = pytest.mark.in_gate

OUR_REASON = "slurmstack: pod leaving"


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """A controller and one worker that stays. The scheduler looks as often as the product lets it, not each minute."""
    return slurm_cluster(slurm_version, workers=1, extra="SchedulerParameters=sched_interval=5,bf_interval=5")


@pytest.fixture
def worker(cluster: SlurmSandbox) -> Iterator[str]:
    """One more worker, idle, and gone after the test."""
    name = "default-1"
    cluster.start_worker(name)
    wait_until(lambda: "IDLE" in states(cluster, name), lambda: f"{name} idle: {cluster.logs()}")
    yield name
    if name in cluster.pods:
        cluster.remove_pod(name)
    cluster.run(f"scontrol update nodename={name} state=down reason=test; scontrol delete nodename={name}")


def record(cluster: SlurmSandbox, name: str) -> dict[str, Any] | None:
    """The node record, or None."""
    done = cluster.run("scontrol show nodes --json")
    nodes = json.loads(done.stdout)["nodes"]
    return next((node for node in nodes if node["name"] == name), None)


def states(cluster: SlurmSandbox, name: str) -> set[str]:
    """The states in the node record; empty without one."""
    found = record(cluster, name)
    return set(found["state"]) if found else set()


def job_state(cluster: SlurmSandbox, job: str) -> str:
    return cluster.run(f"squeue --noheader --states=all --jobs={job} --format=%T").stdout.strip()


def test_a_pending_job_that_asks_for_a_node_by_name_outlives_it(cluster: SlurmSandbox, worker: str) -> None:
    """slurmctld ends pending jobs that ask for a node it does not know, whenever it reads its files or starts."""
    job = cluster.run(f"sbatch --parsable --hold --nodelist={worker} -o /dev/null --wrap true").stdout.strip()

    assert cluster.run([f"{LIBEXEC}/leave"], pod=worker).returncode == 0
    cluster.remove_pod(worker)
    assert "DOWN" in states(cluster, worker)
    cluster.run("scontrol reconfigure")
    wait_until(lambda: "is UP" in cluster.run("scontrol ping").stdout, cluster.logs)
    assert job_state(cluster, job) == "PENDING"
    cluster.run(f"scontrol release {job}")
    wait_until(lambda: "ReqNodeNotAvail" in cluster.run(f"squeue -h -j {job} -o %r").stdout, cluster.logs)

    cluster.start_worker(worker)
    wait_until(lambda: job_state(cluster, job) == "COMPLETED", cluster.logs)
    cluster.run([f"{LIBEXEC}/leave"], pod=worker)
    assert record(cluster, worker) is None


def test_a_pod_that_takes_the_name_again_lifts_what_the_one_before_has_set(cluster: SlurmSandbox, worker: str) -> None:
    """It was killed after it had drained its node, or between setting itself down and deleting its record."""
    for found in (("drain",), ("drain", "down")):
        for state in found:
            cluster.run(["scontrol", "update", f"nodename={worker}", f"state={state}", f"reason={OUR_REASON}"])
        cluster.remove_pod(worker)

        cluster.start_worker(worker)

        wait_until(lambda: states(cluster, worker) == {"IDLE", "DYNAMIC_NORM"}, cluster.logs)
    assert cluster.run(f"srun -w {worker} hostname").stdout.strip() == worker


def test_a_young_job_of_a_pod_that_was_lost_starts_again(cluster: SlurmSandbox, worker: str) -> None:
    """Its node is there again before Slurm's own look for missing jobs would count this one (800 s later)."""
    script = "touch /tmp/at-work; sleep 300"
    job = cluster.run(["sbatch", "--parsable", "-o/dev/null", f"-w{worker}", f"--wrap={script}"]).stdout.strip()
    wait_until((cluster.pods[worker].root / "tmp/at-work").exists, cluster.logs)
    cluster.run(f"scontrol update nodename={worker} state=drain reason='bad memory'")
    cluster.remove_pod(worker)

    cluster.start_worker(worker)

    cluster.wait_for_job(job, "1", "Restarts")
    wait_until(lambda: states(cluster, worker) == {"IDLE", "DRAIN", "DYNAMIC_NORM"}, cluster.logs)
    assert (record(cluster, worker) or {})["reason"] == "bad memory"
    cluster.run(f"scancel {job}")


def test_an_administrators_drain_survives_the_pod_and_stays_with_the_next_one(
    cluster: SlurmSandbox, worker: str
) -> None:
    cluster.run(f"scontrol update nodename={worker} state=drain reason='bad memory'")
    assert cluster.run([f"{LIBEXEC}/leave"], pod=worker).returncode == 0
    assert (record(cluster, worker) or {})["reason"] == "bad memory"
    cluster.remove_pod(worker)

    cluster.start_worker(worker)

    wait_until(lambda: "stays" in cluster.pods[worker].log("slurmd"), cluster.logs)
    wait_until(lambda: "DRAIN" in states(cluster, worker), "still drained")
    assert (record(cluster, worker) or {})["reason"] == "bad memory"
