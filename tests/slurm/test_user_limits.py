"""What one user may take of a login node: a real sshd with PAM, and what the kernel then refuses."""

from __future__ import annotations

import json

import pytest

from config.sections.services import UserLimits
from slurm.users import login_limits
from tests.slurm.cluster import ClusterFactory
from tests.slurm.login import ssh_to, write_host_key, write_user_key
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import LIBEXEC, wait_until
from tests.slurm.sandbox import SlurmSandbox

VERSION = "24.11"
PLUGSTACK = "required /usr/lib/slurmstack/jail.so root=/jail\n"
LIMITS = UserLimits(processes=40, open_files=256, memory="1Gi", cpu_minutes=7)

# The kernel counts a user's processes on the whole machine: the numbers are no other test's.
UIDS = {"alice": 25101, "bob": 25102}


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, tmp_path_factory: pytest.TempPathFactory) -> SlurmSandbox:
    """A worker, a login pod with limits, and a pod to log in from."""
    secret = tmp_path_factory.mktemp("ssh") / "secret"
    write_host_key(secret)
    config = minimal_config(VERSION, "PropagateResourceLimits=NONE", **{"plugstack.conf": PLUGSTACK})
    sandbox = slurm_cluster(VERSION, config=config, workers=1, jail=True)
    client = sandbox.add_pod("client", "jail", {sandbox.jail: "/jail"}, munged=False)
    sandbox.public_key = write_user_key(client.root / "root/key")  # type: ignore[attr-defined]
    declare(sandbox, "alice", "bob")
    login = sandbox.add_pod("login-0", "login", {sandbox.jail: "/jail", secret: "/secrets/ssh"})
    login.start_program("sackd", {"CONTROLLER": "controller-0:6817"})
    login.start_program("sshd", {"JAIL": "/jail", "USER_LIMITS": login_limits(LIMITS)})
    wait_until(lambda: ssh_to(sandbox, "alice", "true")[0] == 0, lambda: login.log("sshd"))
    return sandbox


def declare(cluster: SlurmSandbox, *names: str) -> None:
    """Run the users program with these users declared."""
    public = cluster.public_key  # type: ignore[attr-defined]
    users = {name: {"uid": UIDS[name], "gid": UIDS[name], "ssh_authorized_keys": [public]} for name in names}
    client = cluster.pods["client"]
    (client.root / "config/slurm/users.json").write_text(json.dumps({"users": users}))
    done = client.run([f"{LIBEXEC}/users", "/config/slurm/users.json"])
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_limits_of_a_login_are_the_declared_ones(cluster: SlurmSandbox) -> None:
    code, out = ssh_to(cluster, "alice", "'ulimit -Hu; ulimit -Hn; ulimit -Hv; ulimit -Ht'")

    assert (code, out.split()) == (0, ["40", "256", str(1024 * 1024), "420"])


def test_a_fork_bomb_ends_at_the_limit_and_hurts_nobody_else(cluster: SlurmSandbox) -> None:
    _, out = ssh_to(cluster, "alice", "'for i in $(seq 100); do sleep 5 & done; jobs -r | wc -l; kill $(jobs -p)'")

    assert "Resource temporarily unavailable" in out
    assert ssh_to(cluster, "bob", "'for i in $(seq 20); do true & done; wait; echo fine'") == (0, "fine\n")


def test_open_files_and_memory_end_at_the_limit(cluster: SlurmSandbox) -> None:
    files = """python3 -c '"'"'[f for f in [open("/dev/null") for i in range(300)]]'"'"' """
    memory = """python3 -c '"'"'bytearray(2 * 2**30)'"'"' """
    assert "Too many open files" in ssh_to(cluster, "alice", f"'{files}'")[1]
    assert "MemoryError" in ssh_to(cluster, "alice", f"'{memory}'")[1]


def test_jobs_are_not_bound_by_the_login_s_limits(cluster: SlurmSandbox) -> None:
    code, out = ssh_to(cluster, "alice", "'srun -Q bash -c \"ulimit -Hu; ulimit -Hn; ulimit -Hv; ulimit -Ht\"'")

    assert code == 0, out + cluster.logs()
    assert not {"40", "256", str(1024 * 1024), "420"} & set(out.split()), out


def test_who_failed_to_log_in_does_not_lock_out_others_of_the_same_address(cluster: SlurmSandbox) -> None:
    for _ in range(6):
        assert ssh_to(cluster, "nobody-of-this-name", "true")[0] != 0
    assert ssh_to(cluster, "alice", "true")[0] == 0


def test_a_removed_user_cannot_log_in_nor_copy_with_an_own_key(cluster: SlurmSandbox) -> None:
    """Where sshd uses PAM it does not look at the lock itself, and a key in the user's own home is still there."""
    client = cluster.pods["client"]
    client.run("test -e /root/own || ssh-keygen -q -t ed25519 -N '' -f /root/own")
    public = (client.root / "root/own.pub").read_text().strip()
    assert ssh_to(cluster, "bob", f"'mkdir -p -m 700 .ssh && echo {public} > .ssh/authorized_keys'")[0] == 0
    own = "-o IdentitiesOnly=yes -i /root/own"
    assert ssh_to(cluster, "bob", "true", program=f"ssh {own}")[0] == 0

    declare(cluster, "alice")

    assert ssh_to(cluster, "bob", "true", program=f"ssh {own}")[0] != 0
    assert ssh_to(cluster, "bob", "<<< 'put /etc/hostname stolen'", program=f"sftp {own} -b -")[0] != 0
    assert not (client.root / "jail/home/bob/stolen").exists()
    declare(cluster, "alice", "bob")
    assert ssh_to(cluster, "bob", "true")[0] == 0
