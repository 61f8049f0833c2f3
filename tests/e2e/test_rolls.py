"""New pods for workers on the real Kubernetes, as their nodes fall idle."""

from __future__ import annotations

import json

from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until

SELECTOR = "worker_nodes.default.node_selector"


def revisions(slurm: SlurmOnKubernetes) -> dict[str, str]:
    """Of the template that each worker's pod was made from."""
    return {
        name: pod["metadata"]["labels"]["controller-revision-hash"]
        for name, pod in slurm.pods().items()
        if "slurmstack/pool" in pod["metadata"]["labels"]
    }


def test_a_version_that_finds_no_machine_takes_the_idle_node_alone_and_the_old_one_mends_it(
    two_nodes: SlurmOnKubernetes,
) -> None:
    """Kubernetes itself would begin with the last node, whatever runs on it, and never come back from there."""
    slurm = two_nodes
    before, uids = revisions(slurm), slurm.pod_uids()
    job = slurm.submit("until test -e ~/go; do sleep 0.2; done", "-w default-1", "--time=10", "--output=/dev/null")
    slurm.await_job(job, "RUNNING")
    slurm.change(SELECTOR, {"example.com/none": "such"})
    wait_until(
        lambda: revisions(slurm).get("default-0", before["default-0"]) != before["default-0"], "default-0 is new"
    )
    status = json.loads(slurmstack("status", "--json", "--config", str(slurm.file), check=False).stdout)
    assert [(roll["old"], roll["size"], roll["failing"]) for roll in status["rolls"]] == [(1, 2, ["default-0"])]
    assert revisions(slurm)["default-1"] == before["default-1"]
    slurm.change(SELECTOR, {})
    wait_until(lambda: revisions(slurm) == before, lambda: f"{before}: {revisions(slurm)}")
    wait_until(lambda: slurm.is_idle("default-0"), lambda: f"default-0 is back: {slurm.nodes()}")
    assert slurm.job_state(job) == "RUNNING"
    assert slurm.pod_uids()["default-1"] == uids["default-1"], "it had its turn never"
    slurm.ssh("touch ~/go")
    slurm.await_job(job)
    slurm.ssh("rm ~/go")
    slurm.await_rolled("default-0", "default-1")
