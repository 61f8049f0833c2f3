"""A slurmdbd that takes connections and says nothing, as one does whose database hangs: slurmctld starts without it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.slurm.accounting import AccountingSandbox, job_records, kill
from tests.slurm.cluster import ClusterFactory
from tests.slurm.pod import Pod, wait_until

MOST_SECONDS = 60
"""Until a job is accepted: slurmctld asks four times at its start, each time for 5 s (lost_peers.c), not for 65 s."""


@contextmanager
def silent(pod: Pod) -> Iterator[None]:
    """slurmdbd is stopped; its kernel goes on."""
    pod.run("pkill -STOP -x slurmdbd")
    try:
        yield
    finally:
        pod.processes[-1].send_signal(signal.SIGCONT)  # of nsenter, which has stopped, too, and hands it on


def test_slurmctld_starts_soon_where_slurmdbd_says_nothing(own_cluster: ClusterFactory, slurm_version: str) -> None:
    cluster = own_cluster(slurm_version, kind=AccountingSandbox, workers=1)
    kill(cluster.controller, "slurmctld", signal.SIGTERM)
    submit = "timeout 2 sbatch --parsable --mem=1 --output=/dev/null --wrap true"
    job = ""

    def is_accepted() -> bool:
        nonlocal job
        job = cluster.run(submit).stdout.strip()
        return job != ""

    with silent(cluster.pods["slurmdbd-0"]):
        cluster.controller.start_program("slurmctld")
        assert wait_until(is_accepted, cluster.logs) < MOST_SECONDS

    def states() -> list[str]:
        return [" ".join(one["state"]["current"]) for one in job_records(cluster) if one["job_id"] == int(job)]

    wait_until(lambda: states() == ["COMPLETED"], lambda: f"its record: {states()}\n{cluster.logs()}")
