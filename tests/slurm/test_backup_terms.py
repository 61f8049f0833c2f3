"""Backups of a state that two controllers share, or one has, put back for two or for one: real restic and slurmctld."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.common import terms
from tests.s3_store import s3_store
from tests.slurm.backups import BackupPod
from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import one_version
from tests.slurm.failover import FailoverSandbox
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

STEPS = (("restore-choose", "choose"), ("restore-state", "state"))


def hold(cluster: SlurmSandbox, name: str) -> str:
    """A job that waits, once it is saved."""
    done = cluster.run(f"sbatch --parsable --hold --output=/dev/null --job-name={name} --wrap 'echo {name}'")
    assert done.returncode == 0, done.stderr
    cluster.wait_for_save(name)
    return done.stdout.strip()


def has(cluster: SlurmSandbox, job: str, name: str) -> None:
    """The queue is this one job, with its script."""
    squeue = "squeue --noheader --format='%A %j'"
    wait_until(lambda: cluster.run(squeue).stdout.split() == [job, name], cluster.logs)
    assert f"echo {name}" in cluster.run(f"scontrol write batch_script {job} -").stdout


def restored(backups: BackupPod, saved: str) -> None:
    backups.run("restore", STEPS, WHAT="state", AT=saved, CLUSTER_NAME="")
    assert terms.current(backups.sandbox.state) is None


@pytest.mark.in_gate
@one_version
def test_a_queue_comes_back_whoever_has_saved_it_and_whoever_gets_it(
    own_cluster: ClusterFactory, slurm_version: str, tmp_path: Path
) -> None:
    one = own_cluster(slurm_version, workers=1)
    two = own_cluster(slurm_version, workers=1, kind=FailoverSandbox)
    with s3_store() as store:
        of_one, of_two = (BackupPod(each, store, tmp_path / "jail", prefix=tmp_path.name) for each in (one, two))
        first, second = hold(one, "of-one"), hold(two, "of-two")
        by_one, by_two = of_one.save(database=False), of_two.save(database=False)
        pods: list[Pod] = [two.active, two.other]

        def stopped_and_restored(saved: str) -> None:
            two.stop_supervisors()
            assert [path.name[:5] for path in two.state.iterdir()] == ["term-"]
            restored(of_two, saved)
            for pod in sorted(pods, key=lambda pod: pod.name):
                two.start_supervisor(pod)

        stopped_and_restored(by_one)
        has(two, first, "of-one")
        stopped_and_restored(by_two)
        has(two, second, "of-two")
        one.run("pkill -TERM -x slurmctld")
        wait_until(lambda: one.run("pgrep -x slurmctld").returncode != 0, one.logs)
        restored(of_one, by_two)
        one.controller.start_program("slurmctld")
        has(one, second, "of-two")
