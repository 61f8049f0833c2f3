"""The state's volume with real daemons: what slurmctld has accepted, and what it finds there when it starts again."""

from __future__ import annotations

from pathlib import Path

from tests.slurm.cluster import ClusterFactory
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

NO_NODE = "EnforcePartLimits=NO\n"
"""Else a job is accepted only where there is a node for it."""

HOLD = "sbatch --parsable --hold --output=/dev/null --wrap true"


def stop(cluster: SlurmSandbox, signal: str = "TERM") -> None:
    cluster.run(f"pkill -{signal} -x slurmctld")
    wait_until(lambda: cluster.run("pgrep -x slurmctld").returncode != 0, cluster.logs)


def start(cluster: SlurmSandbox) -> None:
    cluster.controller.start_program("slurmctld")
    wait_until(lambda: "is UP" in cluster.run("scontrol ping").stdout, cluster.logs)


def test_one_controller_finds_the_queue_of_two(own_cluster: ClusterFactory, slurm_version: str) -> None:
    """Of earlier versions, whose active one was killed while it saved."""
    one = own_cluster(slurm_version, workers=0, extra=NO_NODE)
    job = one.run(HOLD).stdout.strip()
    assert job
    stop(one)
    term = one.state / "term-2"
    term.mkdir()
    for path in [path for path in one.state.iterdir() if path != term]:
        path.rename(term / path.name)
    cut_short(term)
    one.remove_pod("controller-0")
    one.start_controller()
    assert one.run(f"squeue --noheader --jobs={job} --format=%A").stdout.split() == [job]
    assert not list(one.state.glob("term-*"))
    assert "whole again: job_state" in one.pods["controller-0"].log("slurmctld")


def cut_short(directory: Path) -> None:
    """As if slurmctld had been killed in the midst of a save: the old job_state is away, the new one has not its name.

    24.11 would read what is older, and 26.05 nothing.
    """
    (directory / "job_state").rename(directory / "job_state.new")
    (directory / "job_state.old").write_bytes(b"of long ago")


def test_a_job_whose_launch_was_lost_with_slurmctld_starts_again(
    own_cluster: ClusterFactory, slurm_version: str
) -> None:
    """Slurm's own look for missing jobs leaves out young ones when nodes register, and comes again 800 s later."""
    cluster = own_cluster(slurm_version, workers=1, extra="TCPTimeout=30")
    cluster.cut_off("default-0")
    job = cluster.run("sbatch --parsable --output=/dev/null --wrap true").stdout.strip()
    cluster.wait_for_job(job, "RUNNING")
    saved = cluster.state / "job_state"
    wait_until(lambda: saved.exists() and b"default-0" in saved.read_bytes(), cluster.logs)  # as running
    stop(cluster, "KILL")
    cluster.cut_off("default-0", cut=False)
    start(cluster)
    assert cluster.job(job)["JobState"] == "RUNNING"

    cluster.wait_for_job(job, "1", "Restarts")
