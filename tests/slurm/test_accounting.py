"""slurmdbd and MariaDB for real: no record of a job is lost, whatever is away or killed meanwhile."""

from __future__ import annotations

import signal
import subprocess

import pytest

from images.controller.configuration import config_hash
from tests.slurm.accounting import (
    AccountingSandbox,
    job_records,
    kill,
    start_accounting,
    start_database,
    wait_for_accounting,
    wait_for_registration,
)
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import accounting_config
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

BURST = 20
"""Jobs that are submitted one after the other, as fast as one shell can."""


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> AccountingSandbox:
    """A cluster with accounting and one worker."""
    return slurm_cluster(slurm_version, workers=1, kind=AccountingSandbox)


def submit(cluster: SlurmSandbox, count: int = 1) -> set[int]:
    """Submit jobs that end at once; their ids."""
    command = f"for n in $(seq {count}); do sbatch --parsable --output=/dev/null --mem=1 --wrap true; done"
    done = cluster.run(command)
    assert done.returncode == 0, done.stderr
    ids = {int(line) for line in done.stdout.split()}
    assert len(ids) == count
    return ids


def wait_for_end(cluster: SlurmSandbox) -> None:
    """Until slurmctld has no job that waits or runs."""
    queue = "squeue --noheader --states=pending,running,completing"
    wait_until(lambda: not cluster.run(queue).stdout.strip(), lambda: cluster.run("squeue").stdout)


def wait_for_records(cluster: SlurmSandbox, ids: set[int]) -> None:
    """Until sacct has every one of these jobs as completed."""

    def missing() -> dict[int, str]:
        found = {job["job_id"]: " ".join(job["state"]["current"]) for job in job_records(cluster)}
        return {job: found.get(job, "no record") for job in ids if found.get(job) != "COMPLETED"}

    wait_until(lambda: not missing(), lambda: f"records of all jobs: {missing()}\n{cluster.logs()}")


@pytest.mark.in_gate
def test_jobs_go_on_without_slurmdbd_and_all_are_recorded_when_it_is_back(cluster: AccountingSandbox) -> None:
    before = submit(cluster, BURST // 2)
    kill(cluster.pods["slurmdbd-0"], "slurmdbd")
    after = submit(cluster, BURST // 2)
    wait_for_end(cluster)
    cluster.pods["slurmdbd-0"].start_program("slurmdbd")
    wait_for_records(cluster, before | after)


def test_slurmctld_starts_without_slurmdbd_and_keeps_what_is_not_recorded_yet(cluster: AccountingSandbox) -> None:
    """It writes the records that wait to its state directory when it ends, as Kubernetes ends it: by SIGTERM."""
    kill(cluster.pods["slurmdbd-0"], "slurmdbd")
    ids = submit(cluster, 5)
    wait_for_end(cluster)
    kill(cluster.controller, "slurmctld", signal.SIGTERM)
    cluster.controller.start_program("slurmctld")
    wait_until(lambda: "is UP" in cluster.run("scontrol ping").stdout, cluster.logs)
    more = submit(cluster, 5)
    cluster.wait_for_nodes(1)
    wait_for_end(cluster)
    cluster.pods["slurmdbd-0"].start_program("slurmdbd")
    wait_for_accounting(cluster)
    wait_for_records(cluster, ids | more)


def test_a_configuration_is_taken_while_the_machine_of_slurmdbd_is_gone(
    cluster: AccountingSandbox, slurm_version: str
) -> None:
    """Nobody says that the connection has ended: slurmctld was silent for a quarter of an hour at its next change."""
    machine = ["nsenter", f"--target={cluster.pods['slurmdbd-0'].pid}", "--net", "ip", "link", "set", "eth0"]
    subprocess.run([*machine, "down"], check=True)
    ids = submit(cluster, 3)
    wanted = accounting_config(slurm_version, "SchedulerParameters=bf_interval=21\n")
    cluster.set_config(wanted)
    active = f"configuration {config_hash(wanted)} is active"
    wait_until(lambda: active in cluster.controller.log("config-agent"), cluster.logs)
    subprocess.run([*machine, "up"], check=True)
    wait_for_records(cluster, ids | submit(cluster, 3))


def test_accounting_can_be_turned_on_in_a_cluster_that_ran_without_it(
    own_cluster: ClusterFactory, slurm_version: str
) -> None:
    """Its own id must go: slurmctld ended with "CLUSTER ID MISMATCH", and was never registered without slurmdbd."""
    sandbox = own_cluster(slurm_version, workers=1)
    submit(sandbox)
    wait_for_end(sandbox)
    start_database(sandbox)
    sandbox.set_config(accounting_config(slurm_version))
    agent = sandbox.controller
    wait_until(lambda: "waiting for slurmdbd" in agent.log("config-agent"), lambda: agent.log("config-agent"))
    assert submit(sandbox), "the old configuration is in force meanwhile"
    start_accounting(sandbox, wait=False)
    wait_for_registration(sandbox)
    wait_for_records(sandbox, submit(sandbox))
