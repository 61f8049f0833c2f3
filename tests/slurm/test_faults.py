"""Ten thousand jobs through two hundred seeded faults: each of them runs to its end.

`SLURMSTACK_SEED=NUMBER` takes another seed, `SLURMSTACK_FAULTS=NUMBER` fewer of them, each with fifty jobs.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from tests.nodes import start_soon
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import kill_programs
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

pytestmark = pytest.mark.soak

SEED = int(os.environ.get("SLURMSTACK_SEED", "1"))
FAULTS = int(os.environ.get("SLURMSTACK_FAULTS", "200"))
JOBS = 50
"""With each fault."""
WORKERS = ("default-0", "default-1", "default-2")
SETTINGS = """
MaxJobCount=20000
MinJobAge=86400
PartitionName=many Nodes=default State=UP OverSubscribe=FORCE:8
"""


class Faults:
    """What may happen to a cluster, and to its jobs."""

    def __init__(self, cluster: SlurmSandbox) -> None:
        self.cluster = cluster
        self.random = Random(SEED)

    def happen(self) -> str:
        """One of them."""
        faults: dict[Callable[[], object], int] = {
            self.lose_worker: 4, self.reconfigure: 3, self.restart_slurmctld: 2, self.kill_slurmctld: 1,
            self.kill_agent: 1, self.cut_off: 1,
        }  # fmt: skip
        (fault,) = self.random.choices([*faults], weights=[*faults.values()])
        time.sleep(self.random.uniform(0, 1))
        fault()
        return fault.__name__

    def lose_worker(self) -> None:
        name = self.random.choice(WORKERS)
        self.cluster.remove_pod(name)
        self.cluster.start_worker(name)

    def reconfigure(self) -> None:
        self.cluster.run("scontrol reconfigure")

    def restart_slurmctld(self) -> None:
        self._end("TERM")

    def kill_slurmctld(self) -> None:
        time.sleep(6)  # what it has accepted in the last five seconds it may not have written yet
        self._end("KILL")

    def kill_agent(self) -> None:
        kill_programs(self.cluster, "config-agent")
        self.cluster.start_agent(self.cluster.controller)

    def _end(self, signal: str) -> None:
        self.cluster.run(f"pkill -{signal} -x slurmctld")
        wait_until(lambda: self.cluster.run("pgrep -x slurmctld").returncode != 0, "slurmctld has ended")
        self.cluster.controller.start_program("slurmctld")
        wait_until(lambda: "is UP" in self.cluster.run("scontrol ping").stdout, self.cluster.logs)

    def cut_off(self) -> None:
        """slurmctld reaches a worker no more for some seconds."""
        name = self.random.choice(WORKERS)
        self.cluster.cut_off(name)
        time.sleep(3)
        self.cluster.cut_off(name, cut=False)


@pytest.mark.timeout(1200 + 10 * FAULTS)
@pytest.mark.parametrize("slurm_version", ["24.11", "26.05"], indirect=True)
def test_each_job_runs_to_its_end_through_many_faults(own_cluster: ClusterFactory, slurm_version: str) -> None:
    cluster = own_cluster(slurm_version, workers=len(WORKERS), extra=SETTINGS)
    faults, accepted = Faults(cluster), 0
    for number in range(1, FAULTS + 1):
        said = cluster.run(
            f"sbatch --parsable --partition=many --array=1-{JOBS} --mem=10 --output=/dev/null --wrap 'sleep 0.2'"
        ).stdout
        assert said.strip().isdecimal(), said
        accepted += JOBS
        print(f"{number}: {faults.happen()}", flush=True)

    def states() -> Counter[str]:
        return Counter(cluster.run("squeue --all --array --noheader --states=all --format=%T").stdout.split())

    def have_ended() -> bool:
        waiting = "squeue --all --noheader --states=pending --start --format='%A %r' | awk '/BeginTime/ {print $1}'"
        for job in cluster.run(waiting).stdout.split()[:20]:  # Slurm itself lets one that was requeued wait for 2 min
            start_soon(lambda command: cluster.run(command).stdout, job)
        return {*states()} == {"COMPLETED"}

    wait_until(have_ended, lambda: f"{states()}\n{cluster.run('squeue --all').stdout}", 1800)
    assert states() == {"COMPLETED": accepted}
