"""Jobs run in the jail: steps, batch scripts and interactive steps, with Slurm's own daemons and the real plugin."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from config import load_config
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.login import BIND, make_users
from tests.slurm.minimal import IN_JAIL, identity, lines_of, minimal_config
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox
from tests.slurm.terminal import type_at

pytestmark = pytest.mark.in_gate


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """Two workers with the jail, and a login pod with alice."""
    extra = lines_of(load_config(stacks.dev()), "Prolog", "Epilog")
    config = minimal_config(slurm_version, extra, **IN_JAIL, **identity({"alice": 10001}))
    sandbox = slurm_cluster(slurm_version, config=config, workers=2, jail=True)
    users = sandbox.add_pod("users", "jail", {sandbox.jail: "/jail"}, munged=False)
    make_users(users, {"users": {"alice": {"uid": 10001, "gid": 10001}}})
    login = sandbox.add_pod("login-0", "login", {sandbox.jail: "/jail"})
    login.start_program("sackd", {"CONTROLLER": "controller-0:6817"})
    wait_until((login.root / "run/slurm/conf/slurm.conf").exists, f"sackd: {login.log('sackd')}")
    # What sshd does for a login, less the network: the pod's view bound into the jail, then chroot.
    bound = login.run(["python3", "-c", BIND])
    assert bound.returncode == 0, bound.stdout + bound.stderr
    return sandbox


@pytest.fixture
def jail(cluster: SlurmSandbox) -> Path:
    """The jail as the shared volume has it."""
    return cluster.jail


def as_alice(cluster: SlurmSandbox, command: str) -> str:
    """Run a command in the jail on the login pod as alice, as her shell would."""
    login: Pod = cluster.pods["login-0"]
    done = login.run(
        ["chroot", "--userspec=10001:10001", "/jail", "bash", "-c", f"cd /home/alice && {command}"],
        env={"HOME": "/home/alice", "USER": "alice"},
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{cluster.logs()}"
    return done.stdout


def test_a_step_runs_inside_the_jail_on_its_own_node_as_the_user_whom_only_the_jail_knows(
    cluster: SlurmSandbox,
) -> None:
    there = "test -c /dev/null -a -S /run/munge/munge.socket.2 && echo complete"
    out = as_alice(cluster, f"srun -N2 bash -c 'cat /.slurmstack/populated /etc/hostname; id -un; {there}'")
    assert out.count("-test") == out.split().count("alice") == out.split().count("complete") == 2
    assert {"default-0", "default-1"} <= set(out.split())


def test_a_job_has_its_own_tmp_and_what_the_user_says_wins(cluster: SlurmSandbox) -> None:
    out = as_alice(cluster, "srun -N1 sh -c 'echo $TMPDIR; touch $TMPDIR/a && stat -c %U:%a $TMPDIR; ls $TMPDIR'")
    assert out.split() == ["/tmp", "alice:700", "a"]
    assert as_alice(cluster, "TMPDIR=/var/tmp srun -N1 sh -c 'echo $TMPDIR'") == "/var/tmp\n"


def test_a_batch_script_its_output_and_its_steps_on_other_nodes_are_inside_the_jail(
    cluster: SlurmSandbox, jail: Path
) -> None:
    as_alice(
        cluster,
        r"printf '#!/bin/bash\ncat /.slurmstack/populated\nsrun -N2 hostname\n' > job.sh"
        " && sbatch --wait -N2 -o job.out job.sh",
    )
    out = (jail / "home/alice/job.out").read_text()
    assert "-test" in out
    assert {"default-0", "default-1"} <= set(out.split())


def test_the_shell_of_salloc_is_a_step_on_the_worker_inside_the_jail(cluster: SlurmSandbox) -> None:
    """Which is what `use_interactive_step` is for: without it the shell would be on the login node."""
    inside = ["chroot", "--userspec=10001:10001", "/jail", "bash", "-c", "cd /home/alice && exec salloc -Q -N1"]
    alice = {"HOME": "/home/alice", "USER": "alice", "SHELL": "/bin/bash"}
    look = "echo on=$(hostname) step=$SLURM_STEP_ID user=$(id -un) populated=$(cat /.slurmstack/populated 2>&1)"
    shown = type_at(cluster.pods["login-0"], inside, look, "exit", env=alice)
    assert re.search(r"on=default-\d step=-?\d+ user=alice populated=[^\r\n]*-test", shown), shown
