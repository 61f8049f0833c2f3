"""Workers without the jail and without capabilities (`security: baseline`), with Slurm's own daemons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from config import load_config
from slurm.conf import render
from slurm.sizing import node_conf
from slurm.users import EXTRAUSERS
from tests import stacks
from tests.security.walk import SCRIPT, left_open, walked
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import activate
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

POOL = {"size": 1, "resources": {"cpus": 2, "memory": "1Gi"}, "security": "baseline"}
USERS: dict[str, Any] = {"alice": {"uid": 23001, "groups": ["ml"]}, "bob": {"uid": 23002}}
ALICE = "uid=23001(alice) gid=23001(alice) groups=23001(alice),24001(ml)"


def files(version: str, users: dict[str, Any]) -> dict[str, str]:
    """The configuration of a stack with one pool without the jail."""
    sections = stacks.dev() | {
        "worker_nodes": {"plain": POOL},
        "partitions": {"main": {"pools": ["plain"]}},
        "accounting": {"enabled": False},
        "groups": {"ml": {"gid": 24001}},
        "users": users,
        "slurm": {"version": version},
    }
    return render(load_config(sections))


@pytest.fixture(scope="module")
def shared(slurm_version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A volume of `slurmstack:mounts`; each version's own, as jobs tell the tests by files in it where they are."""
    directory = tmp_path_factory.mktemp(f"shared-{slurm_version}")
    directory.chmod(0o1777)
    return directory


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str, shared: Path) -> SlurmSandbox:
    """One worker, with the users mounted as the component mounts them; jobs come from the controller's pod."""
    pool = load_config(stacks.dev() | {"worker_nodes": {"plain": POOL}, "partitions": {}}).worker_nodes["plain"]
    sandbox = slurm_cluster(
        slurm_version, config=files(slurm_version, USERS), workers=0, node_conf=node_conf("plain", pool)
    )
    for name in USERS:
        home = sandbox.controller.root / "home" / name
        home.mkdir()
        home.chmod(0o777)
    (sandbox.controller.root / "shared").mkdir()
    binds = {sandbox.config_directory: EXTRAUSERS, shared: "/shared"}
    mounts = json.dumps([{"source": "/shared", "path": "/shared"}])
    sandbox.start_worker_on("plain-0", binds=binds, env={"MOUNTS": mounts})
    sandbox.wait_for_nodes(1)
    return sandbox


def as_user(cluster: SlurmSandbox, name: str, uid: int, command: str) -> tuple[int, str, str]:
    """(exit code, output, errors) of a command as the user would give it in the own home, which workers lack."""
    user = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    done = cluster.run(
        [*user, "bash", "-c", f"cd /home/{name} && {command}"],
        env={"HOME": f"/home/{name}", "USER": name, "SHELL": "/bin/bash"},
    )
    return done.returncode, done.stdout, done.stderr


def alice(cluster: SlurmSandbox, command: str) -> str:
    """What a command of alice prints."""
    code, out, errors = as_user(cluster, "alice", 23001, command)
    assert code == 0, f"{command}: {out}{errors}\n{cluster.logs()}"
    return out


def submit(cluster: SlurmSandbox, script: str, *options: str) -> str:
    """Submit a batch job of alice; its id."""
    return alice(cluster, f"sbatch --parsable {' '.join(options)} --wrap '{script}'").strip()


def test_a_job_without_its_home_works_in_tmp_and_says_so(cluster: SlurmSandbox) -> None:
    code, out, errors = as_user(cluster, "alice", 23001, "srun pwd")
    assert (code, out) == (0, "/tmp\n")
    assert "couldn't chdir to `/home/alice'" in errors


def test_a_batch_job_writes_its_output_to_a_shared_volume(cluster: SlurmSandbox, shared: Path) -> None:
    job = submit(cluster, "srun id; pwd", "--chdir=/shared")
    cluster.wait_for_job(job, "COMPLETED")
    assert (shared / f"slurm-{job}.out").read_text() == f"{ALICE}\n/shared\n"


def test_users_come_and_go_without_a_restart_and_running_jobs_go_on(cluster: SlurmSandbox, shared: Path) -> None:
    wait = "touch /shared/runs; until test -e /shared/go; do sleep 0.1; done"
    job = submit(cluster, wait, "--output=/shared/%j.out")
    wait_until((shared / "runs").exists, cluster.logs)

    activate(cluster, files(cluster.version, {"bob": USERS["bob"], "carol": {"uid": 23003}}))

    assert as_user(cluster, "bob", 23003, "srun -Q id -un")[:2] == (0, "carol\n")
    assert as_user(cluster, "alice", 23001, "srun -Q id -un")[0] != 0
    assert cluster.job(job)["JobState"] == "RUNNING"
    (shared / "go").touch()
    cluster.wait_for_job(job, "COMPLETED")


def test_nothing_in_the_pod_is_open_to_others(cluster: SlurmSandbox) -> None:
    done = cluster.run(["python3", "-c", SCRIPT, "/"], pod="plain-0")

    assert done.returncode == 0, done.stderr
    assert not left_open(done.stdout)
    assert walked(done.stdout) >= {"/run/slurm", "/var/spool/slurmd", "/dev/shm", "/tmp"}
