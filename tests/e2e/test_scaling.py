"""Changing a pool's size and applying is the whole scaling procedure."""

from __future__ import annotations

from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.stacks import with_change

SIZE = "worker_nodes.default.size"


def test_the_preview_of_a_scaling_shows_one_changed_property(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    before = slurm.sections
    slurm.sections = with_change(before, SIZE, 3)
    if slurm.engine == "kubectl":
        (change,) = slurm.preview()["changes"]
        assert (change["action"], change["kind"], change["name"]) == ("update", "StatefulSet", "default")
        assert change["properties"] == [{"path": "spec.replicas", "old": 2, "new": 3}]
    slurm.sections = before


def test_a_pool_may_shrink_to_nothing_and_come_back(two_nodes: SlurmOnKubernetes) -> None:
    two_nodes.change(SIZE, 0)
    wait_until(lambda: not two_nodes.nodes(), "no node is left")
    assert two_nodes.ssh("sbatch --wrap true 2>&1", check=False).startswith("sbatch: error"), (
        "no node could ever run it"
    )
    two_nodes.change(SIZE, 1)
    two_nodes.await_idle("default-0")
    two_nodes.await_job(two_nodes.submit("true"))
