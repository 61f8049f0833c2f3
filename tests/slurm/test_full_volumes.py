"""A state volume that is full: slurmctld lives on and comes back, and nothing that was accepted is lost."""

from __future__ import annotations

import subprocess

import pytest

from images.controller.configuration import config_hash
from tests.slurm.accounting import kill
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import change, edited, status
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

pytestmark = pytest.mark.soak

FILLER = "/var/spool/slurmctld/filler"


class SmallState(SlurmSandbox):
    """slurmctld with a state volume of 24 MiB."""

    def start_controller(self, *, daemons: bool = True) -> Pod:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(self.state)], check=True)
        return super().start_controller(daemons=daemons)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        subprocess.run(["umount", "--lazy", str(self.state)], check=True)


def submit(cluster: SlurmSandbox, *options: str) -> subprocess.CompletedProcess[str]:
    return cluster.run(f"sbatch --parsable --chdir=/tmp --output=/dev/null {' '.join(options)} --wrap 'true'")


def test_a_full_state_volume_keeps_the_queue(own_cluster: ClusterFactory, slurm_version: str) -> None:
    config = minimal_config(slurm_version)
    cluster = own_cluster(slurm_version, kind=SmallState, workers=1, config=config)
    held = submit(cluster, "--hold").stdout.strip()
    wait_until((cluster.state / "job_state").exists, "slurmctld has saved its queue")
    nodes = cluster.state / "node_state"
    wait_until(lambda: nodes.exists() and b"default-0" in nodes.read_bytes(), "slurmctld has saved its nodes")

    filled = cluster.run(f"dd if=/dev/zero of={FILLER} bs=64k; dd if=/dev/zero of={FILLER}-2 bs=1")
    assert "No space left" in filled.stderr, filled.stderr

    assert "I/O error writing script/environment to file" in submit(cluster).stderr
    changed = edited(config, "MinJobAge=301")
    rejected = change(cluster, changed)["rejected"]
    assert "the volume controller-state is full" in rejected["message"], "the agent lives, and says why"
    kill(cluster.controller, "slurmctld")
    cluster.controller.start_program("slurmctld")
    wait_until(lambda: "is UP" in cluster.run("scontrol ping").stdout, cluster.logs)
    assert held in cluster.run("squeue --noheader --format=%i").stdout.split()

    cluster.run(f"rm {FILLER} {FILLER}-2")

    job = submit(cluster).stdout.strip()
    wait_until(lambda: not cluster.run(f"squeue --noheader -j {job}").stdout.strip(), cluster.logs)
    assert held in cluster.run("squeue --noheader --format=%i").stdout.split()
    wait_until(lambda: status(cluster)["active"] == config_hash(changed), cluster.logs)
