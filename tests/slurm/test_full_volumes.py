"""Volumes that are full: each daemon lives on and comes back, and nothing that was accepted is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from images.controller.configuration import config_hash
from tests.slurm.accounting import AccountingSandbox, job_records, kill
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import change, edited, status
from tests.slurm.conftest import one_version
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

pytestmark = pytest.mark.soak

FILLER = "filler"
STATE, DATA = "/var/spool/slurmctld", "/var/lib/mysql"


@contextmanager
def small(directory: Path, megabytes: int) -> Iterator[None]:
    """A directory that has little room."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(directory)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)


def fill(pod: Pod, directory: str) -> None:
    """Take all that is left, as root, to the last byte."""
    done = pod.run(f"dd if=/dev/zero of={directory}/{FILLER} bs=64k; dd if=/dev/zero of={directory}/{FILLER}-2 bs=1")
    assert "No space left" in done.stderr, done.stderr


def empty(pod: Pod, directory: str) -> None:
    pod.run(f"rm {directory}/{FILLER} {directory}/{FILLER}-2")


class SmallState(SlurmSandbox):
    """slurmctld with a state volume of 24 MiB."""

    def start_controller(self, *, daemons: bool = True) -> Pod:
        self.small = small(self.state, 24)
        self.small.__enter__()
        return super().start_controller(daemons=daemons)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.small.__exit__(None, None, None)


def submit(cluster: SlurmSandbox, *options: str) -> subprocess.CompletedProcess[str]:
    return cluster.run(f"sbatch --parsable --chdir=/tmp --output=/dev/null {' '.join(options)} --wrap 'true'")


def test_a_full_state_volume_keeps_the_queue(own_cluster: ClusterFactory, slurm_version: str) -> None:
    config = minimal_config(slurm_version)
    cluster = own_cluster(slurm_version, kind=SmallState, workers=1, config=config)
    held = submit(cluster, "--hold").stdout.strip()
    wait_until((cluster.state / "job_state").exists, "slurmctld has saved its queue")
    nodes = cluster.state / "node_state"
    wait_until(lambda: nodes.exists() and b"default-0" in nodes.read_bytes(), "slurmctld has saved its nodes")

    fill(cluster.controller, STATE)

    assert "I/O error writing script/environment to file" in submit(cluster).stderr
    changed = edited(config, "MinJobAge=301")
    rejected = change(cluster, changed)["rejected"]
    assert "the volume controller-state is full" in rejected["message"], "the agent lives, and says why"
    kill(cluster.controller, "slurmctld")
    cluster.controller.start_program("slurmctld")
    wait_until(lambda: "is UP" in cluster.run("scontrol ping").stdout, cluster.logs)
    assert held in cluster.run("squeue --noheader --format=%i").stdout.split()

    empty(cluster.controller, STATE)

    job = submit(cluster).stdout.strip()
    wait_until(lambda: not cluster.run(f"squeue --noheader -j {job}").stdout.strip(), cluster.logs)
    assert held in cluster.run("squeue --noheader --format=%i").stdout.split()
    wait_until(lambda: status(cluster)["active"] == config_hash(changed), cluster.logs)


class SmallDatabase(AccountingSandbox):
    """MariaDB with a volume of 320 MiB, of which the empty database takes most."""

    def start_controller(self, *, daemons: bool = True) -> Pod:
        volume = self.work / "database-volume"
        volume.mkdir()
        self.small = small(volume, 320)
        self.small.__enter__()
        return super().start_controller(daemons=daemons)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.small.__exit__(None, None, None)


@one_version
def test_a_full_database_volume_loses_no_record(own_cluster: ClusterFactory, slurm_version: str) -> None:
    cluster = own_cluster(slurm_version, kind=SmallDatabase, workers=1)
    database = cluster.pods["database"]

    fill(database, DATA)

    job = submit(cluster).stdout.strip()
    assert job.isdecimal(), "jobs go on"
    wait_until(lambda: not cluster.run(f"squeue --noheader --states=PD,R,CG -j {job}").stdout.strip(), cluster.logs)

    empty(database, DATA)

    def recorded() -> bool:
        return (job, ["COMPLETED"]) in [(str(one["job_id"]), one["state"]["current"]) for one in job_records(cluster)]

    wait_until(recorded, cluster.logs)
