"""Another release of Slurm with another root of the jail, on real Kubernetes and under a stream of jobs.

First one that fails half way and is taken back; then one that is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from cli.errors import FAILED
from tests.e2e.conftest import ENGINES, own_cluster
from tests.e2e.failures import LANE
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until
from tests.e2e.job_stream import all_recorded, stream_of_jobs
from tests.stacks import dev, with_change

pytestmark = pytest.mark.watch  # the last lane waited for it alone

NAMESPACE = f"e2e-upgrade-{LANE}".replace("_", "-").rstrip("-")
OLD, NEW = "24.11", "26.05"
GO, BACK = "/home/alice/go-on", "/home/alice/go-back"


@pytest.fixture(scope="module")
def old(local_kubernetes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmOnKubernetes]:
    sections = dev() | {
        "cluster": {"namespace": NAMESPACE},
        "slurm": {**dev().get("slurm", {}), "version": OLD},
        "health": {"enabled": False},
    }
    directory = tmp_path_factory.mktemp("upgrade")
    with own_cluster(ENGINES[-1], directory, sections, "default-0", "default-1") as slurm:
        yield slurm


def release_of(printed: str) -> str:
    """Of what `--version` prints: `slurm-wlm 24.11.5`."""
    return printed.rsplit(maxsplit=1)[-1][:5]


def releases(slurm: SlurmOnKubernetes) -> list[str]:
    """Of the nodes."""
    return re.findall(r"Version=(\d\d\.\d\d)", slurm.slurm("scontrol show nodes"))


def test_a_slurmdbd_that_does_not_start_is_taken_back_and_no_job_notices(old: SlurmOnKubernetes) -> None:
    slurm, before = old, old.sections
    if slurm.engine == "pulumi":
        pytest.skip("the engine waits hours for slurmdbd, which may be converting its database")
    uids = slurm.pod_uids()
    slurm.ssh(f"rm -f {BACK}")
    job = slurm.submit(f"while [ ! -e {BACK} ]; do sleep 0.2; done", "-w", "default-1", "--exclusive")
    slurm.await_job(job, "RUNNING")
    with stream_of_jobs(slurm, seed=2411, seconds=(0, 1), pause=1) as stream:
        new = with_change(with_change(before, "slurm.version", NEW), "jail.root", f"slurm-{NEW}")
        slurm.sections = with_change(new, "accounting.settings", {"DebugLevel": "none-that-there-is"})
        options = ("--yes", "--engine", slurm.engine, "--config", str(slurm.file), "--timeout", "12")
        failed = slurmstack("up", *options, check=False)
        assert failed.returncode == FAILED, failed
        assert "still not ready: slurmdbd" in failed.stderr
        assert "Invalid DebugLevel" in failed.stderr
        assert "slurmctld, workers and login nodes are as they were" in failed.stderr
        assert slurm.pods()["controller-0"]["metadata"]["uid"] == uids["controller-0"]
        slurm.sections = before
        slurm.up()
        there = len(stream.accepted)
        wait_until(lambda: len(stream.accepted) > there + 2, "jobs are accepted")
    slurm.ssh(f"touch {BACK}")
    slurm.await_job(job)
    after = slurm.pod_uids()
    assert {name for name in uids if after.get(name) != uids[name]} == {"slurmdbd-0"}
    assert release_of(slurm.slurm("scontrol --version")) == OLD
    assert stream.wrong() == {}
    wait_until(lambda: all_recorded(slurm, [job, *stream.accepted]), "slurmdbd has the records it was away for")
    assert slurm.preview()["changes"] == []


def test_the_next_release_but_one_is_taken_under_load_and_no_job_is_lost(old: SlurmOnKubernetes) -> None:
    slurm = old
    before = slurm.sections
    refused = slurm.change("slurm.version", NEW, check=False)
    assert refused.returncode != 0
    assert "name another root, which is filled anew" in refused.stderr
    assert release_of(slurm.slurm("scontrol --version")) == OLD, "nothing was touched"

    job = slurm.submit(f"while [ ! -e {GO} ]; do sleep 0.2; done", "-w", "default-1", "--exclusive")
    slurm.await_job(job, "RUNNING")
    slurm.sections = before
    with stream_of_jobs(slurm, seed=2605, seconds=(0, 1), pause=1) as stream:
        wait_until(lambda: len(stream.accepted) >= 5, "a stream of jobs")
        slurm.sections = with_change(before, "jail.root", f"slurm-{NEW}")
        slurm.change("slurm.version", NEW)
        assert release_of(slurm.slurm("scontrol --version")) == NEW
        assert slurm.job_state(job) == "RUNNING", "on the old node, in the old root"
        there = len(stream.accepted)
        wait_until(lambda: len(stream.accepted) > there + 3, "jobs are accepted")
        slurm.ssh(f"touch {GO}")
        slurm.await_job(job)
        wait_until(lambda: releases(slurm) == [NEW] * 2, lambda: f"all nodes: {releases(slurm)}", timeout=300)
    print(f"{len(stream.accepted)} jobs, {stream.longest_gap:.1f} s without one that was accepted")
    assert stream.wrong() == {}
    assert {release_of(line) for line in slurm.ssh("srun -N2 sinfo --version").splitlines()} == {NEW}
    wait_until(lambda: all_recorded(slurm, stream.accepted), "slurmdbd has the records it was away for")
    assert slurm.preview()["changes"] == []

    slurm.sections = with_change(slurm.sections, "jail.root", "back")
    refused = slurm.change("slurm.version", OLD, check=False)
    assert refused.returncode != 0
    assert f"which {OLD} cannot read" in refused.stderr
