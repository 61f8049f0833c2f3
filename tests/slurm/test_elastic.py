"""Elastic pools with real daemons: Slurm starts nodes for jobs and ends them, whatever happens meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from config import load_config
from slurm.conf import WEIGHTS_FILE, render
from slurm.sizing import node_conf
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import activate
from tests.slurm.elastic import CONF, NONE, ElasticSandbox, await_none, await_state, elastic_config, state, submit
from tests.slurm.gpu_driver import bring_driver
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import Pod, wait_until
from tests.stacks import existing, with_change

UNTIL_GO = "until [ -e /tmp/go ]; do sleep 0.2; done"
"""On its node, where it is told so."""


def began(elastic: ElasticSandbox, node: str) -> bool:
    """Whether a job that says so runs there."""
    return node in elastic.pods and (elastic.pods[node].root / "tmp/began").exists()


@pytest.fixture(scope="module")
def elastic(slurm_cluster: ClusterFactory, slurm_version: str) -> ElasticSandbox:
    sections = with_change(existing(), "slurm.version", slurm_version)
    for key, value in {"size": {"min": 0, "max": 4}, "idle_timeout": "10s", "resume_timeout": "40s"}.items():
        sections = with_change(sections, f"worker_nodes.gpu.{key}", value)
    config = elastic_config(slurm_version, load_config(sections))
    sandbox = slurm_cluster(slurm_version, kind=ElasticSandbox, config=config)
    wait_until(lambda: sandbox.states() == NONE, lambda: f"all nodes are off: {sandbox.states()}\n{sandbox.logs()}")
    return sandbox


@pytest.mark.in_gate
def test_a_job_on_an_empty_pool_gets_its_nodes_which_leave_when_they_are_idle_but_for_a_drained_one(
    elastic: ElasticSandbox,
) -> None:
    job = submit(elastic, "--nodes=2")
    await_state(elastic, job, "COMPLETED")
    assert sorted(elastic.elastic_pods()) == ["gpu-0", "gpu-1"]
    elastic.run("scontrol update nodename=gpu-0 state=drain reason='a fan'")
    only = {**NONE, "gpu-0": "IDLE+CLOUD+DRAIN+DYNAMIC_NORM"}
    wait_until(lambda: elastic.states() == only, lambda: f"one stays: {elastic.states()}\n{elastic.said()}")
    assert sorted(elastic.elastic_pods()) == ["gpu-0"]
    elastic.run("scontrol update nodename=gpu-0 state=power_down")
    await_none(elastic)


def test_nodes_leave_a_smaller_pool_after_their_jobs_and_a_larger_one_brings_them_back(elastic: ElasticSandbox) -> None:
    job = submit(elastic, "--nodelist=gpu-3", script=UNTIL_GO)
    await_state(elastic, job, "RUNNING")
    elastic.set_pool(max=2)
    wait_until(
        lambda: sorted(elastic.states()) == ["gpu-0", "gpu-1", "gpu-3"], lambda: f"one leaves: {elastic.states()}"
    )
    assert state(elastic, job) == "RUNNING"
    elastic.run("touch /tmp/go", pod="gpu-3")
    wait_until(lambda: sorted(elastic.states()) == ["gpu-0", "gpu-1"], lambda: f"they leave: {elastic.states()}")
    assert state(elastic, job) == "COMPLETED"
    elastic.set_pool(max=4)
    await_none(elastic)


def test_a_job_that_lost_a_node_goes_back_to_the_queue_though_that_leaves_the_pool_and_slurmctld_restarts_meanwhile(
    elastic: ElasticSandbox,
) -> None:
    """Without the record of the node that is gone it was COMPLETING for ever."""
    job = submit(elastic, "--nodes=2", "--requeue", script=f"trap '' TERM; touch /tmp/began; {UNTIL_GO}")
    wait_until(lambda: began(elastic, "gpu-0"), lambda: f"it runs: {elastic.said()}")
    elastic.lose("gpu-1")
    await_state(elastic, job, "COMPLETING")
    elastic.set_pool(max=1)
    wait_until(lambda: "DRAIN" in elastic.states().get("gpu-1", "DRAIN"), lambda: f"it is off: {elastic.said()}")
    assert state(elastic, job) == "COMPLETING"
    elastic.restart_slurmctld()
    elastic.run("touch /tmp/go", pod="gpu-0")
    await_state(elastic, job, "PENDING")
    wait_until(lambda: sorted(elastic.states()) == ["gpu-0"], lambda: f"it has left: {elastic.said()}")
    elastic.run(f"scancel {job}")
    elastic.set_pool()
    await_none(elastic)


def test_a_job_is_given_back_when_its_pool_leaves_the_stack_file_while_its_node_comes(elastic: ElasticSandbox) -> None:
    """Not when Slurm itself gives the node up, which may be much later."""
    files = {path.name: path.read_text() for path in elastic.config_directory.iterdir()}
    activate(elastic, {**files, "slurm.conf": files["slurm.conf"].replace("ResumeTimeout=40", "ResumeTimeout=900")})
    elastic.machines = 0
    job = submit(elastic, "--nodes=1")
    wait_until(lambda: [*elastic.elastic_pods()] == ["gpu-0"], lambda: f"its pod is made: {elastic.said()}")
    await_state(elastic, job, "CONFIGURING")
    elastic.remove_pool()
    wait_until(lambda: not elastic.states(), lambda: f"all nodes leave: {elastic.states()}\n{elastic.said()}")
    shown = elastic.run(f"squeue --noheader --jobs={job} --format='%T %r'").stdout.split()
    assert shown[0] == "PENDING"
    assert shown[1] != "None"
    elastic.run(f"scancel {job}")
    elastic.machines = 100
    elastic.set_pool()
    activate(elastic, files)
    await_none(elastic)


def test_as_many_as_are_kept_come_without_a_job_and_leave_when_none_are(elastic: ElasticSandbox) -> None:
    assert elastic.run("scontrol update SuspendExcNodes=gpu-[0-3]:2").returncode == 0  # as slurm.conf has it with `min`
    elastic.set_pool(min=2)
    up = "IDLE+CLOUD+DYNAMIC_NORM"
    wait_until(lambda: [*elastic.states().values()].count(up) == 2, lambda: f"{elastic.states()}\n{elastic.said()}")
    elastic.set_pool()
    elastic.run("scontrol reconfigure")  # to slurm.conf, which keeps none
    await_none(elastic)


def test_records_of_older_resources_are_made_anew_but_for_one_that_a_job_names(elastic: ElasticSandbox) -> None:
    def memory() -> list[str]:
        shown = elastic.run("scontrol show nodes --all --oneliner").stdout
        return [line.partition(" RealMemory=")[2].split()[0] for line in sorted(shown.splitlines())]

    named = submit(elastic, "--hold", "--nodelist=gpu-3")
    elastic.set_pool(conf=f"{CONF} Weight=1000".replace("RealMemory=1000", "RealMemory=900"))
    wait_until(lambda: memory() == ["900", "900", "900", "1000"], lambda: f"{memory()}\n{elastic.said()}")

    elastic.run(f"scontrol release {named}")
    await_state(elastic, named, "COMPLETED")
    elastic.run("scontrol update nodename=gpu-[0-3] state=power_down")
    wait_until(lambda: memory() == ["900"] * 4, lambda: f"{memory()}, {elastic.states()}\n{elastic.said()}")
    elastic.set_pool()
    wait_until(lambda: memory() == ["1000"] * 4, lambda: f"{memory()}, {elastic.states()}\n{elastic.said()}")
    await_none(elastic)


def shows(elastic: ElasticSandbox, command: str, words: list[str]) -> bool:
    return elastic.run(command).stdout.split() == words


def test_a_weight_of_the_stack_file_stands_in_place_of_the_usual_one(
    elastic: ElasticSandbox, slurm_version: str
) -> None:
    files = {path.name: path.read_text() for path in elastic.config_directory.iterdir()}
    show = "scontrol show nodes --all --oneliner | grep -o ' Weight=[0-9]*' | sort | uniq -c"
    for weights, weight in (({WEIGHTS_FILE: "gpu 3\n"}, "3"), ({}, "1000")):
        activate(elastic, {**files, **weights})
        wanted = ["4", f"Weight={weight}"]
        wait_until(partial(shows, elastic, show, wanted), lambda: f"{elastic.run(show).stdout}\n{elastic.said()}")


def test_a_cluster_without_elastic_pools_takes_a_configuration_with_one(
    slurm_cluster: ClusterFactory, slurm_version: str
) -> None:
    sections = with_change(with_change(existing(), "slurm.version", slurm_version), "worker_nodes.gpu.size", {"max": 4})
    sandbox = slurm_cluster(slurm_version, config=minimal_config(slurm_version), workers=0)
    activate(sandbox, elastic_config(slurm_version, load_config(sections)))


GPUS: dict[str, Any] = {
    "size": {"min": 0, "max": 4},
    "idle_timeout": "10s",
    "resume_timeout": "40s",
    "resources": {"cpus": 2, "memory": "1Gi", "gpus": {"count": 2, "type": "h100", "shard": 8}},
}


class ElasticGpus(ElasticSandbox):
    """Each pod finds two GPUs, played by files."""

    conf = ""

    def set_pool(self, name: str = "gpu", **changes: Any) -> None:
        super().set_pool(name, **{"conf": f"{self.conf} Weight=1000", **changes})

    def worker_env(self) -> dict[str, str]:
        return {**super().worker_env(), "NODE_CONF": self.conf}

    def start_worker_on(self, name: str, *, env: Mapping[str, str] | None = None, **more: Any) -> Pod:
        return super().start_worker_on(name, env=env, before=bring_driver, **more)


def test_a_job_gets_gpus_of_a_node_that_comes_for_it(own_cluster: ClusterFactory, slurm_version: str) -> None:
    sections = with_change(existing(), "slurm.version", slurm_version)
    stack = load_config(with_change(sections, "worker_nodes.gpu", GPUS))
    ElasticGpus.conf = node_conf("gpu", stack.worker_nodes["gpu"])
    assert ElasticGpus.conf.endswith("Gres=gpu:h100:2,shard:8")
    files = {"gres.conf": render(stack)["gres.conf"]}
    elastic = own_cluster(
        slurm_version, kind=ElasticGpus, config=elastic_config(slurm_version, stack, "GresTypes=gpu,shard", **files)
    )
    wait_until(lambda: elastic.states() == NONE, lambda: f"all nodes are off: {elastic.states()}\n{elastic.logs()}")
    script = "echo $CUDA_VISIBLE_DEVICES > /tmp/visible"
    job = submit(elastic, "--gpus=h100:2", "--nodes=1", script=script)
    visible = Path("tmp/visible")
    wait_until(
        lambda: any((pod.root / visible).exists() for pod in elastic.pods.values()),
        lambda: f"job {job} runs: {elastic.said()}",
    )
    (found,) = {(pod.root / visible).read_text() for pod in elastic.pods.values() if (pod.root / visible).exists()}
    assert found == "0,1\n"
    assert "INVALID_REG" not in elastic.states()["gpu-0"]
    await_none(elastic)
