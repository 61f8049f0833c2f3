"""Logging in: the real sshd, chrooted into the jail, with the users that the stack file declares."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import LIBEXEC, Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

pytestmark = pytest.mark.in_gate

VERSION = "24.11"
PLUGSTACK = "required /usr/lib/slurmstack/jail.so root=/jail\n"


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, tmp_path_factory: pytest.TempPathFactory) -> SlurmSandbox:
    """A worker, a login pod with sshd and sackd, and a pod to log in from. Alice has sudo, Bob has not."""
    ssh = tmp_path_factory.mktemp("ssh")
    user_key, host_key = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public = user_key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    host = ssh / "secret"
    host.mkdir()
    pem = host_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (host / "ssh_host_ed25519_key").write_bytes(pem)
    config = minimal_config(VERSION, **{"plugstack.conf": PLUGSTACK})
    sandbox = slurm_cluster(VERSION, config=config, workers=1, jail=True)
    client = sandbox.add_pod("client", "jail", {sandbox.jail: "/jail"}, munged=False)
    key = client.root / "root/key"
    key.write_bytes(user_key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    key.chmod(0o600)
    declare(sandbox, public, "alice", "bob")
    login = sandbox.add_pod("login-0", "login", {sandbox.jail: "/jail", host: "/secrets/ssh"})
    login.start_program("sackd", {"CONTROLLER": "controller-0:6817"})
    login.start_program("sshd", {"JAIL": "/jail"})
    sandbox.public_key = public  # type: ignore[attr-defined]
    wait_until(lambda: ssh_to(sandbox, "alice", "true")[0] == 0, "a first login")
    return sandbox


def declare(cluster: SlurmSandbox, public_key: str, *names: str) -> None:
    """Run the users program with these users declared."""
    users = {
        name: {"uid": 10001 + index, "gid": 10001 + index, "ssh_authorized_keys": [public_key], "sudo": name == "alice"}
        for index, name in enumerate(names)
    }
    client: Pod = cluster.pods["client"]
    (client.root / "config/slurm/users.json").write_text(json.dumps({"users": users}))
    done = client.run([f"{LIBEXEC}/users", "/config/slurm/users.json"])
    assert done.returncode == 0, done.stdout + done.stderr


def ssh_to(
    cluster: SlurmSandbox, user: str, command: str, program: str = "ssh", key: str = "/root/key"
) -> tuple[int, str]:
    """(exit code, output) of a command over ssh."""
    options = f"-i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes -o LogLevel=ERROR"
    done = cluster.run(["bash", "-c", f"{program} {options} {user}@login-0 {command}"], pod="client")
    return done.returncode, done.stdout + done.stderr


def test_a_user_lands_in_the_jail_at_home(cluster: SlurmSandbox) -> None:
    code, out = ssh_to(cluster, "alice", "'id -un; pwd; cat /.slurmstack/populated'")

    assert code == 0, out
    assert out.startswith("alice\n/home/alice\n")
    assert VERSION in out


def test_slurm_works_from_a_login(cluster: SlurmSandbox) -> None:
    code, out = ssh_to(cluster, "alice", "'sinfo -h -N -o %N; srun -Q hostname; srun -Q id -un'")

    assert code == 0, out + cluster.logs()
    assert out.split() == ["default-0", "default-0", "alice"]


def test_a_terminal_is_there(cluster: SlurmSandbox) -> None:
    code, out = ssh_to(cluster, "alice", "tty", program="ssh -tt")

    assert code == 0, out
    assert "/dev/pts/" in out


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


def test_a_user_who_is_no_longer_declared_cannot_log_in(cluster: SlurmSandbox) -> None:
    public: str = cluster.public_key  # type: ignore[attr-defined]
    assert ssh_to(cluster, "bob", "true")[0] == 0

    declare(cluster, public, "alice")
    assert ssh_to(cluster, "bob", "true")[0] != 0
    assert ssh_to(cluster, "alice", "test -d /home/bob")[0] == 0

    declare(cluster, public, "alice", "bob")
    assert ssh_to(cluster, "bob", "true")[0] == 0


def test_a_locked_account_cannot_log_in(cluster: SlurmSandbox) -> None:
    assert ssh_to(cluster, "alice", "sudo passwd --quiet --lock bob") == (0, "")
    assert ssh_to(cluster, "bob", "true")[0] != 0
    assert ssh_to(cluster, "alice", "sudo usermod --password '*' bob") == (0, "")
    assert ssh_to(cluster, "bob", "true")[0] == 0
