"""Changing a pool's size and applying is the whole scaling procedure."""

from __future__ import annotations

from tests.e2e.asking_doctor import first
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


def test_a_larger_size_gives_a_node_that_runs_jobs(two_nodes: SlurmOnKubernetes) -> None:
    two_nodes.change(SIZE, 3)
    two_nodes.await_idle("default-0", "default-1", "default-2")
    names = two_nodes.ssh("srun -N3 hostname").split()
    assert sorted(names) == ["default-0", "default-1", "default-2"]


def test_a_smaller_size_lets_the_job_end_and_then_removes_the_node(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    job = slurm.submit("until test -e ~/go; do sleep 0.2; done; echo ended well", "-N2", "--output=job-%j.out")
    slurm.await_job(job, "RUNNING")
    other_pod = slurm.pod_uids()["default-0"]
    slurm.change(SIZE, 1)  # returns while the job still runs
    wait_until(lambda: "DRAIN" in slurm.nodes().get("default-1", ""), "default-1 drains")
    told = first(slurm)
    assert (told["cause"], told["severity"]) == ("default-1 leaves and waits for 1 job", "note")
    assert f"scancel {job}" in told["mend"]
    assert slurm.job_state(job) == "RUNNING"
    slurm.ssh("touch ~/go")
    slurm.await_job(job)
    assert slurm.ssh(f"cat job-{job}.out; rm ~/go").strip() == "ended well"
    slurm.await_idle("default-0")
    wait_until(lambda: "default-1" not in slurm.pods(), "the pod default-1 is gone")
    assert slurm.pod_uids()["default-0"] == other_pod


def test_a_pool_may_shrink_to_nothing_and_come_back(two_nodes: SlurmOnKubernetes) -> None:
    two_nodes.change(SIZE, 0)
    wait_until(lambda: not two_nodes.nodes(), "no node is left")
    assert two_nodes.ssh("sbatch --wrap true 2>&1", check=False).startswith("sbatch: error"), (
        "no node could ever run it"
    )
    two_nodes.change(SIZE, 1)
    two_nodes.await_idle("default-0")
    two_nodes.await_job(two_nodes.submit("true"))


def test_an_administrator_s_drain_survives_the_pod(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    slurm.slurm("scontrol update nodename=default-1 state=drain reason='bad disk'")
    before = slurm.pod_uids()["default-1"]
    slurm.kubectl.run("delete", "pod", "default-1", "-n", slurm.namespace)
    wait_until(lambda: slurm.pod_uids().get("default-1", before) != before, "another pod default-1")
    wait_until(lambda: slurm.pods()["default-1"]["status"]["phase"] == "Running", "the pod runs")
    wait_until(
        lambda: slurm.nodes().get("default-1", frozenset()) >= {"IDLE", "DRAIN"}, lambda: f"drained: {slurm.nodes()}"
    )
    assert "bad disk" in slurm.slurm("sinfo -R --noheader --format=%E")
    slurm.slurm("scontrol update nodename=default-1 state=resume")
    slurm.await_idle("default-0", "default-1")
