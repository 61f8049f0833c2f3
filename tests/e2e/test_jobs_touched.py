"""Before a change is made, preview and up say which jobs it touches, and nobody loses a job unasked."""

from __future__ import annotations

import json

from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until
from tests.stacks import with_change


def test_a_change_that_would_lose_jobs_is_refused_until_somebody_asks_for_it(two_nodes: SlurmOnKubernetes) -> None:
    slurm, before = two_nodes, two_nodes.sections
    pool = {"size": 1, "resources": {"cpus": 1, "memory": "1Gi"}}
    more = with_change(before, "worker_nodes.extra", pool)
    slurm.sections = with_change(more, "partitions.old", {"pools": ["extra"]})
    slurm.up()
    slurm.await_idle("default-0", "default-1", "extra-0")
    running = slurm.submit("until test -e ~/go; do sleep 0.2; done", "--partition=old")
    slurm.await_job(running, "RUNNING")
    waiting = slurm.submit("true", "--partition=old", "--array=1-9:2%3")
    elsewhere = slurm.submit("true", "--hold")

    slurm.sections = with_change(before, "slurm.cluster_name", "other")
    refused = slurmstack("preview", "--engine", slurm.engine, "--config", str(slurm.file), check=False)
    assert refused.returncode == 3
    assert "slurm.cluster_name" in refused.stdout + refused.stderr

    slurm.sections = before
    shown = slurmstack("preview", "--json", "--engine", slurm.engine, "--config", str(slurm.file), check=False)
    assert shown.returncode == 3
    jobs = {item["id"].partition("_")[0]: item for item in json.loads(shown.stdout)["jobs"]["jobs"]}
    assert {job: item["effect"] for job, item in jobs.items()} == {running: "waits", waiting: "never_starts"}
    refused = slurm.up(check=False)
    assert refused.returncode == 3
    assert f"1 job would end or never start: {waiting}_[" in refused.stderr
    assert f"{running} alice old RUNNING is waited for: pool 'extra' leaves" in refused.stdout
    assert slurm.job_state(waiting) == "PENDING"

    # Slurm rejects this one, so the pool stays, and with it the partition as it was.
    slurm.sections = with_change(before, "slurm.settings.KillWait", "soon")
    failed = slurmstack(
        "up", "--yes", "--kill-jobs", "--engine", slurm.engine, "--config", str(slurm.file), check=False
    )
    assert failed.returncode == 1
    assert "KillWait" in failed.stdout + failed.stderr
    if slurm.engine == "kubectl":  # the engine may wait for a pool that waits for these jobs, so they go before
        assert slurm.job_state(waiting) == "PENDING"
    assert not any("DRAIN" in states for states in slurm.nodes().values()), "no node leaves"
    late = slurm.submit("true", "--partition=old", "--hold")
    slurm.sections = before
    refused = slurm.up(check=False)
    assert refused.returncode == 3, "the configuration in force has the partition, whatever the ConfigMap says"
    assert late in refused.stderr.partition("would end or never start:")[2]

    slurmstack("up", "--yes", "--kill-jobs", "--engine", slurm.engine, "--config", str(slurm.file))
    slurm.await_job(late, "CANCELLED")
    slurm.await_job(waiting, "CANCELLED")
    assert (slurm.job_state(running), slurm.job_state(elsewhere)) == ("RUNNING", "PENDING")
    slurm.ssh("touch ~/go")
    slurm.await_job(running)
    slurm.ssh("rm ~/go")
    wait_until(lambda: "extra-0" not in slurm.nodes(), "extra-0 has left")
