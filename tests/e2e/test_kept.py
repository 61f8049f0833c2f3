"""A cluster that was destroyed and comes back with its data: users find all as they left it."""

from __future__ import annotations

import pytest

from cli.access.reach import host_public_key
from tests.e2e.harness import SlurmOnKubernetes, only_data_is_left, slurmstack, wait_until


def test_a_new_up_goes_on_with_what_destroy_has_kept(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    if slurm.engine != "kubectl":
        pytest.skip("Pulumi's engine keeps neither claims nor keys")
    slurm.ssh("echo mine >kept-file")
    before = slurm.submit("true")
    slurm.await_job(before)
    wait_until(lambda: "COMPLETED" in slurm.slurm(f"sacct -n -X -j {before} -o state"), "accounting has the job")
    waits = slurm.submit("hostname >ran-after-up", "--begin=now+1hour")
    host_key = host_public_key(slurm.kubectl, slurm.namespace)
    token = slurm.slurm("scontrol token username=alice lifespan=3600").strip()

    runs = slurm.submit("sleep 5; echo done > at-the-end")
    slurm.await_job(runs, "RUNNING")
    options = ("--yes", "--engine", slurm.engine, "--config", str(slurm.file))
    slurmstack("destroy", *options, timeout=300)
    only_data_is_left(slurm)
    said = slurm.up()
    assert "goes on with what `destroy` has kept: " in said.stdout
    slurm.await_idle("default-0", "default-1")

    assert host_public_key(slurm.kubectl, slurm.namespace) == host_key
    assert slurm.ssh("cat kept-file at-the-end") == "mine\ndone\n", "the job that ran when it was destroyed ended well"
    assert slurm.job_state(waits) == "PENDING"
    slurm.run_now(waits)
    slurm.await_job(waits)
    after = slurm.submit("true")
    assert int(after) > int(waits) > int(before)
    slurm.await_job(after)
    assert "COMPLETED" in slurm.slurm(f"sacct -n -X -j {before} -o state")
    used = slurm.slurm(f"{token} squeue --noheader && echo accepted", check=False)
    assert "accepted" in used, "tokens of before are good"
    kept = {item["metadata"]["name"] for item in slurm.kubectl.items("namespace", "-l", "slurmstack/kept")}
    assert slurm.namespace not in kept
    assert slurm.preview()["changes"] == []
