"""Elastic pools with real daemons: Slurm starts nodes for jobs and ends them, whatever happens meanwhile."""

from __future__ import annotations

import time

import pytest

from config import load_config
from slurm.conf import config_hash
from tests.slurm.cluster import ClusterFactory
from tests.slurm.elastic import ElasticSandbox, elastic_config
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import wait_until
from tests.stacks import existing, with_change

NONE = {f"gpu-{number}": "IDLE+CLOUD+DYNAMIC_NORM+POWERED_DOWN" for number in range(4)}


@pytest.fixture(scope="module")
def elastic(slurm_cluster: ClusterFactory, slurm_version: str) -> ElasticSandbox:
    sections = with_change(existing(), "slurm.version", slurm_version)
    for key, value in {"size": {"min": 0, "max": 4}, "idle_timeout": "10s", "resume_timeout": "40s"}.items():
        sections = with_change(sections, f"worker_nodes.gpu.{key}", value)
    config = elastic_config(slurm_version, load_config(sections))
    sandbox = slurm_cluster(slurm_version, kind=ElasticSandbox, config=config)
    assert isinstance(sandbox, ElasticSandbox)
    wait_until(lambda: sandbox.states() == NONE, lambda: f"all nodes are off: {sandbox.states()}\n{sandbox.logs()}")
    return sandbox


def submit(elastic: ElasticSandbox, *options: str, script: str = "true") -> str:
    done = elastic.run(["sbatch", "--parsable", "--partition=gpu", "--output=/dev/null", *options, "--wrap", script])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def state(elastic: ElasticSandbox, job: str) -> str:
    return elastic.run(f"squeue --noheader --states=all --jobs={job} --format=%T").stdout.strip()


def await_state(elastic: ElasticSandbox, job: str, *states: str, timeout: float = 60) -> None:
    wait_until(
        lambda: state(elastic, job) in states,
        lambda: f"job {job} is {states}: {state(elastic, job)}, {elastic.states()}\n{elastic.said()}",
        timeout,
    )


def await_none(elastic: ElasticSandbox, timeout: float = 60) -> None:
    wait_until(
        lambda: elastic.states() == NONE and not elastic.elastic_pods(),
        lambda: f"all nodes are off: {elastic.states()}, {elastic.elastic_pods().keys()}\n{elastic.said()}",
        timeout,
    )


def test_a_job_on_an_empty_pool_gets_its_nodes_which_leave_when_they_are_idle(elastic: ElasticSandbox) -> None:
    job = submit(elastic, "--nodes=2")
    await_state(elastic, job, "COMPLETED")
    assert sorted(elastic.elastic_pods()) == ["gpu-0", "gpu-1"]
    await_none(elastic)


def test_one_call_brings_all_nodes_of_a_job(elastic: ElasticSandbox) -> None:
    job = submit(elastic, "--nodes=4")
    await_state(elastic, job, "COMPLETED")
    await_none(elastic)


def test_where_there_is_no_room_the_job_waits_the_pool_pauses_and_the_job_runs_when_there_is(
    elastic: ElasticSandbox,
) -> None:
    elastic.machines = 1
    try:
        job = submit(elastic, "--nodes=2")
        reason = "slurmstack/elastic: no capacity, 1 in vain"
        wait_until(
            lambda: reason in elastic.run("sinfo -N -o %E -p gpu").stdout,
            lambda: f"the pool pauses: {elastic.run('sinfo -N -l').stdout}\n{elastic.said()}",
            90,
        )
        assert state(elastic, job) == "PENDING"
        wait_until(lambda: len(elastic.elastic_pods()) == 0, "what came for the job has gone", 30)
    finally:
        elastic.machines = 100
    elastic.run(f"scontrol update jobid={job} starttime=now")
    await_state(elastic, job, "COMPLETED", timeout=90)
    await_none(elastic)


def test_a_pod_that_vanishes_under_a_job_gives_the_job_back_and_the_node_is_started_again(
    elastic: ElasticSandbox,
) -> None:
    job = submit(elastic, "--requeue", script="sleep 300")
    await_state(elastic, job, "RUNNING")
    elastic.lose("gpu-0")
    await_state(elastic, job, "PENDING")
    elastic.run(f"scontrol update jobid={job} starttime=now")
    await_state(elastic, job, "RUNNING", timeout=90)
    elastic.run(f"scancel {job}")
    await_none(elastic, timeout=90)


def test_slurmctld_that_is_killed_while_nodes_come_starts_the_job_all_the_same(elastic: ElasticSandbox) -> None:
    elastic.machines = 0
    job = submit(elastic, "--nodes=2")
    wait_until(lambda: len(elastic.elastic_pods()) == 2, "pods are made", 30)
    time.sleep(6)  # slurmctld writes what it has accepted every five seconds, and has lost the rest when it is killed
    elastic.run("pkill -KILL -x slurmctld")
    elastic.machines = 100
    elastic.controller.start_program("slurmctld")
    await_state(elastic, job, "COMPLETED", timeout=120)
    await_none(elastic, timeout=90)


def test_nodes_beyond_a_smaller_size_leave_after_their_jobs_and_a_larger_one_brings_them_back(
    elastic: ElasticSandbox,
) -> None:
    job = submit(elastic, "--nodelist=gpu-3", script="sleep 5")
    await_state(elastic, job, "RUNNING")
    elastic.set_pool(max=2)
    wait_until(lambda: sorted(elastic.states()) == ["gpu-0", "gpu-1"], lambda: f"they leave: {elastic.states()}", 60)
    assert state(elastic, job) == "COMPLETED"
    elastic.set_pool(max=4)
    await_none(elastic)


def test_as_many_nodes_as_min_says_stay_up_and_one_with_a_job_twice_is_made_anew(elastic: ElasticSandbox) -> None:
    elastic.set_pool(min=1)
    wait_until(lambda: elastic.states()["gpu-0"] == "IDLE+CLOUD+DYNAMIC_NORM", lambda: str(elastic.states()), 60)
    # As slurmctld does it where a job that it starts is on the node already.
    done = elastic.run("runuser -u slurm -- scontrol update nodename=gpu-0 state=drain reason='Duplicate jobid'")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: elastic.states()["gpu-0"] == NONE["gpu-0"], lambda: f"{elastic.states()}\n{elastic.said()}", 60)
    wait_until(lambda: elastic.states()["gpu-1"] == "IDLE+CLOUD+DYNAMIC_NORM", lambda: str(elastic.states()), 60)
    elastic.set_pool(min=0)
    elastic.run("scontrol update nodename=gpu-1 state=power_down")
    await_none(elastic)


def test_a_cluster_without_elastic_pools_takes_a_configuration_with_one(
    slurm_cluster: ClusterFactory, slurm_version: str
) -> None:
    sections = with_change(with_change(existing(), "slurm.version", slurm_version), "worker_nodes.gpu.size", {"max": 4})
    sandbox = slurm_cluster(slurm_version, config=minimal_config(slurm_version), workers=0)
    files = elastic_config(slurm_version, load_config(sections))
    sandbox.set_config(files)
    line = f"{config_hash(files)} is active"
    wait_until(lambda: line in sandbox.controller.log("config-agent"), sandbox.logs)
