"""An elastic pool in a switch tree: nodes that are off take jobs, and those with a machine are below its switch."""

from __future__ import annotations

import re

import pytest

from config import load_config
from tests.slurm.cluster import ClusterFactory
from tests.slurm.elastic import NONE, ElasticSandbox, await_none, await_state, elastic_config, state, submit
from tests.slurm.pod import Pod, wait_until
from tests.slurm.switches import LABELS_FILE, NODES, TREE, leaves_of
from tests.stacks import existing, with_change

LEAVES = {"gpu-0": "core.a", "gpu-1": "core.b", "gpu-2": "core.a", "gpu-3": "core.b"}
UNPLACED = dict.fromkeys(LEAVES, "unknown")


class InTheTree(ElasticSandbox):
    """Its agent waits less before a change of the tree, and between two.

    But longer until nothing more changes: 26.05 never launches a batch job whose nodes have all come, and whose
    `await-nodes` has not yet returned on a busy machine, when the tree is read just then.
    """

    def start_agent(self, pod: Pod) -> None:
        code = pod.root / "usr/lib/slurmstack/images/controller/topology.py"
        text, found = re.subn(r"(?m)^((?:PATIENT|SPACING|SETTLE)_SECONDS: Final = ).*", r"\g<1>4.0", code.read_text())
        assert found == 3
        code.write_text(text)
        super().start_agent(pod)


@pytest.fixture(scope="module")
def elastic(slurm_cluster: ClusterFactory, slurm_version: str) -> ElasticSandbox:
    sections = with_change(existing(), "slurm.version", slurm_version)
    for key, value in {"size": {"min": 0, "max": 4}, "idle_timeout": "300s", "resume_timeout": "40s"}.items():
        sections = with_change(sections, f"worker_nodes.gpu.{key}", value)
    config = elastic_config(slurm_version, load_config(sections), TREE, **LABELS_FILE)
    sandbox = slurm_cluster(slurm_version, kind=InTheTree, config=config, nodes=NODES)
    sandbox.machine_of = {f"gpu-{number}": f"node-{number}" for number in range(4)}
    return sandbox


def await_leaves(elastic: ElasticSandbox, wanted: dict[str, str]) -> None:
    wait_until(
        lambda: leaves_of(elastic) == wanted,
        lambda: f"leaves: {leaves_of(elastic)}, {elastic.states()}\n{elastic.logs()}",
    )


def placed(elastic: ElasticSandbox) -> int:
    """How often new nodes have waited for their places in the tree, and were given them."""
    return elastic.controller.log("config-agent").count("nodes that waited for the topology have their places now")


def test_nodes_that_are_off_are_in_the_tree_and_take_jobs(elastic: ElasticSandbox) -> None:
    await_leaves(elastic, UNPLACED)
    wait_until(lambda: elastic.states() == NONE, lambda: f"all nodes are off: {elastic.states()}")
    assert placed(elastic) == 1
    await_state(elastic, submit(elastic, "--nodes=4", "--switches=1"), "COMPLETED")


def test_nodes_that_have_a_machine_are_below_its_switch_and_jobs_get_one_switch(elastic: ElasticSandbox) -> None:
    await_leaves(elastic, LEAVES)
    blocker = submit(elastic, "--nodelist=gpu-0", "--exclusive", script="sleep 300")
    await_state(elastic, blocker, "RUNNING")
    done = elastic.run("srun --partition=gpu --nodes=2 --exclusive hostname")
    assert sorted(done.stdout.split()) == ["gpu-1", "gpu-3"], done.stderr
    elastic.run(f"scancel {blocker}")


def test_nodes_that_are_off_lose_their_places_and_one_that_is_up_gets_its_own_while_a_job_waits_for_another_one(
    elastic: ElasticSandbox,
) -> None:
    elastic.run("scontrol update nodename=gpu-[0-3] state=power_down")
    await_none(elastic)
    await_leaves(elastic, UNPLACED)
    first = submit(elastic, "--nodes=1", "--no-requeue", script="sleep 600")
    await_state(elastic, first, "RUNNING")
    (there,) = elastic.elastic_pods()
    elastic.machines = 1
    second = submit(elastic, "--nodes=1", "--exclusive", "--no-requeue")
    wait_until(lambda: len(elastic.elastic_pods()) == 2, "its pod is made")
    await_leaves(elastic, {**UNPLACED, there: LEAVES[there]})
    assert state(elastic, second) == "CONFIGURING"
    elastic.machines = 100
    await_state(elastic, second, "COMPLETED")
    assert state(elastic, first) == "RUNNING"
    elastic.run(f"scancel {first}")


def test_nodes_that_are_added_under_waiting_jobs_take_them(elastic: ElasticSandbox) -> None:
    """They are in no switch before the tree is read anew: a job that tried one would be put aside for good."""
    elastic.set_pool(max=1)
    wait_until(lambda: len(elastic.states()) == 1, lambda: str(elastic.states()))
    blocker = submit(elastic, "--nodes=1", "--exclusive", script="sleep 600")
    await_state(elastic, blocker, "RUNNING")
    before = placed(elastic)
    jobs = [submit(elastic, "--nodes=1", "--exclusive") for _ in range(4)]
    elastic.set_pool(max=4)
    for job in jobs:
        await_state(elastic, job, "COMPLETED")
    assert placed(elastic) == before + 1
    elastic.run(f"scancel {blocker}")
