"""Logging in: the real sshd, chrooted into the jail, with the users and limits that the stack file declares."""

from __future__ import annotations

import pytest

from config.sections.services import UserLimits
from slurm.users import login_limits
from tests.slurm.cluster import ClusterFactory
from tests.slurm.login import declare, ssh_to, start_client, start_login
from tests.slurm.minimal import IN_JAIL, minimal_config
from tests.slurm.sandbox import SlurmSandbox

pytestmark = pytest.mark.in_gate

VERSION = "24.11"
LIMITS = UserLimits(processes=40, open_files=256, memory="1Gi", cpu_minutes=7)

# The kernel counts a user's processes on the whole machine: the numbers are no other test's.
UIDS = {"alice": 25101, "bob": 25102}


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory) -> SlurmSandbox:
    """A worker, a login pod with sshd, sackd and limits, and a pod to log in from. Alice has sudo, Bob has not."""
    config = minimal_config(VERSION, "PropagateResourceLimits=NONE", **IN_JAIL)
    sandbox = slurm_cluster(VERSION, config=config, workers=1, jail=True)
    start_client(sandbox)
    declare(sandbox, UIDS, sudo="alice")
    start_login(sandbox, USER_LIMITS=login_limits(LIMITS))
    return sandbox


def test_a_user_lands_in_the_jail_at_home(cluster: SlurmSandbox) -> None:
    code, out = ssh_to(cluster, "alice", "'id -un; pwd; cat /.slurmstack/populated'")

    assert code == 0, out
    assert out.startswith("alice\n/home/alice\n")
    assert VERSION in out


def test_sudo_is_for_those_who_have_it(cluster: SlurmSandbox) -> None:
    assert ssh_to(cluster, "alice", "sudo -n id -un") == (0, "root\n")
    assert ssh_to(cluster, "bob", "sudo -n id -un")[0] != 0


def test_files_are_copied(cluster: SlurmSandbox) -> None:
    code, out = ssh_to(cluster, "alice", "<<< 'put /etc/hostname copied'", program="sftp -b -")

    assert code == 0, out
    assert ssh_to(cluster, "alice", "test -s copied")[0] == 0


def test_root_cannot_log_in(cluster: SlurmSandbox) -> None:
    assert ssh_to(cluster, "root", "true")[0] != 0


def test_a_key_that_nobody_declared_opens_nothing_and_locks_no_other_out(cluster: SlurmSandbox) -> None:
    """Behind a Service many clients have one address."""
    cluster.pods["client"].run("ssh-keygen -q -t ed25519 -N '' -f /root/strange")
    assert all(ssh_to(cluster, "alice", "true", key="/root/strange")[0] != 0 for _ in range(6))
    assert ssh_to(cluster, "alice", "true")[0] == 0


def test_a_locked_account_cannot_log_in(cluster: SlurmSandbox) -> None:
    assert ssh_to(cluster, "alice", "sudo passwd --quiet --lock bob") == (0, "")
    assert ssh_to(cluster, "bob", "true")[0] != 0
    assert ssh_to(cluster, "alice", "sudo usermod --password '*' bob") == (0, "")
    assert ssh_to(cluster, "bob", "true")[0] == 0


def test_the_limits_of_a_login_are_the_declared_ones(cluster: SlurmSandbox) -> None:
    code, out = ssh_to(cluster, "alice", "'ulimit -Hu; ulimit -Hn; ulimit -Hv; ulimit -Ht'")

    assert (code, out.split()) == (0, ["40", "256", str(1024 * 1024), "420"])


def test_a_fork_bomb_ends_at_the_limit_and_hurts_nobody_else(cluster: SlurmSandbox) -> None:
    _, out = ssh_to(cluster, "alice", "'for i in $(seq 100); do sleep 5 & done; jobs -r | wc -l; kill $(jobs -p)'")

    assert "Resource temporarily unavailable" in out
    assert ssh_to(cluster, "bob", "'for i in $(seq 20); do true & done; wait; echo fine'") == (0, "fine\n")


def test_jobs_are_not_bound_by_the_login_s_limits(cluster: SlurmSandbox) -> None:
    code, out = ssh_to(cluster, "alice", "'srun -Q bash -c \"ulimit -Hu; ulimit -Hn; ulimit -Hv; ulimit -Ht\"'")

    assert code == 0, out + cluster.logs()
    assert not {"40", "256", str(1024 * 1024), "420"} & set(out.split()), out


def test_a_removed_user_cannot_log_in_nor_copy_with_an_own_key(cluster: SlurmSandbox) -> None:
    """Where sshd uses PAM it does not look at the lock itself, and a key in the user's own home is still there."""
    client = cluster.pods["client"]
    client.run("test -e /root/own || ssh-keygen -q -t ed25519 -N '' -f /root/own")
    public = (client.root / "root/own.pub").read_text().strip()
    assert ssh_to(cluster, "bob", f"'mkdir -p -m 700 .ssh && echo {public} > .ssh/authorized_keys'")[0] == 0
    assert ssh_to(cluster, "bob", "true", key="/root/own")[0] == 0

    declare(cluster, {"alice": UIDS["alice"]})

    assert ssh_to(cluster, "bob", "true", key="/root/own")[0] != 0
    assert ssh_to(cluster, "bob", "<<< 'put /etc/hostname stolen'", program="sftp -b -", key="/root/own")[0] != 0
    assert not (client.root / "jail/home/bob/stolen").exists()
    declare(cluster, UIDS)
    assert ssh_to(cluster, "bob", "true")[0] == 0
