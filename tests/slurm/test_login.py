"""Logging in: the real sshd, chrooted into the jail, with the users that the stack file declares."""

from __future__ import annotations

import pytest

from tests.slurm.cluster import ClusterFactory
from tests.slurm.login import declare, ssh_to, start_client, start_login
from tests.slurm.minimal import IN_JAIL, minimal_config
from tests.slurm.pod import Pod
from tests.slurm.sandbox import SlurmSandbox

pytestmark = pytest.mark.in_gate

VERSION = "24.11"
UIDS = {"alice": 10001, "bob": 10002}


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory) -> SlurmSandbox:
    """A worker, a login pod with sshd and sackd, and a pod to log in from. Alice has sudo, Bob has not."""
    sandbox = slurm_cluster(VERSION, config=minimal_config(VERSION, **IN_JAIL), workers=1, jail=True)
    start_client(sandbox)
    declare(sandbox, UIDS, sudo="alice")
    start_login(sandbox)
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


def test_a_key_in_the_users_own_home_works(cluster: SlurmSandbox) -> None:
    code, out = own_keys(cluster, "echo")
    assert code == 0, out


def own_keys(cluster: SlurmSandbox, before: str) -> tuple[int, str]:
    """Log in by the key in alice's home, behind what `before` writes there."""
    client: Pod = cluster.pods["client"]
    client.run("test -e /root/own || ssh-keygen -q -t ed25519 -N '' -f /root/own")
    public = (client.root / "root/own.pub").read_text().strip()
    script = f"mkdir -p -m 700 .ssh; rm -f .ssh/authorized_keys; exec >>.ssh/authorized_keys; {before}; echo {public}"
    code, out = ssh_to(cluster, "alice", f"'{script}'")
    assert code == 0, out
    return ssh_to(cluster, "alice", "true", key="/root/own")


def test_root_cannot_log_in(cluster: SlurmSandbox) -> None:
    assert ssh_to(cluster, "root", "true")[0] != 0


def test_a_locked_account_cannot_log_in(cluster: SlurmSandbox) -> None:
    assert ssh_to(cluster, "alice", "sudo passwd --quiet --lock bob") == (0, "")
    assert ssh_to(cluster, "bob", "true")[0] != 0
    assert ssh_to(cluster, "alice", "sudo usermod --password '*' bob") == (0, "")
    assert ssh_to(cluster, "bob", "true")[0] == 0
