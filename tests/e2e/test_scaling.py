"""Changing a pool's size and applying is the whole scaling procedure."""

from __future__ import annotations

from tests.e2e.harness import SlurmOnKubernetes, wait_until

SIZE = "worker_nodes.default.size"


def test_a_pool_may_shrink_to_nothing_and_come_back(two_nodes: SlurmOnKubernetes) -> None:
    two_nodes.change(SIZE, 0)
    wait_until(lambda: not two_nodes.nodes(), "no node is left")
    assert two_nodes.ssh("sbatch --wrap true 2>&1", check=False).startswith("sbatch: error"), (
        "no node could ever run it"
    )
    two_nodes.change(SIZE, 1)
    two_nodes.await_idle("default-0")
    two_nodes.await_job(two_nodes.submit("true"))
