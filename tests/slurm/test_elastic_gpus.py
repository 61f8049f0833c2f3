"""Elastic pools whose nodes have GPUs, played by files in their pods."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config import load_config
from slurm.conf import render
from slurm.sizing import node_conf
from tests.slurm.cluster import ClusterFactory
from tests.slurm.elastic import NONE, ElasticSandbox, await_none, elastic_config, submit
from tests.slurm.gpu_driver import bring_driver
from tests.slurm.pod import Pod, wait_until
from tests.stacks import existing, with_change

POOL: dict[str, Any] = {
    "size": {"min": 0, "max": 4},
    "idle_timeout": "10s",
    "resume_timeout": "40s",
    "resources": {"cpus": 2, "memory": "1Gi", "gpus": {"count": 2, "type": "h100", "shard": 8}},
}


class ElasticGpus(ElasticSandbox):
    """Each pod finds two GPUs."""

    conf = ""

    def set_pool(self, **changes: Any) -> None:
        super().set_pool(**{"conf": f"{self.conf} Weight=1000", **changes})

    def worker_env(self) -> dict[str, str]:
        return {**super().worker_env(), "NODE_CONF": self.conf}

    def start_worker_on(self, name: str, *, env: Mapping[str, str] | None = None, **more: Any) -> Pod:
        return super().start_worker_on(name, env=env, before=bring_driver, **more)


def test_a_job_gets_gpus_of_a_node_that_comes_for_it(own_cluster: ClusterFactory, slurm_version: str) -> None:
    sections = with_change(existing(), "slurm.version", slurm_version)
    stack = load_config(with_change(sections, "worker_nodes.gpu", POOL))
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
