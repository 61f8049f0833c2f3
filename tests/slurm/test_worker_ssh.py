"""ssh to the nodes of one's job: the real sshd of a worker beside slurmd, PAM, and steps of real jobs."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator

import pytest

from config import load_config
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.login import OPTIONS as LOGIN_OPTIONS
from tests.slurm.login import declare, start_client, start_login
from tests.slurm.minimal import IMPATIENT, IN_JAIL, lines_of, minimal_config
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox
from tests.slurm.terminal import type_at
from tests.slurm.worker_ssh import WorkerSsh

UIDS = {"alice": 25201, "bob": 25202}
NODES = ("default-0", "default-1")
OPTIONS = LOGIN_OPTIONS.split()
FILES = 456
"""Of `login.user_limits`: how many files a process may have open."""


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """Two workers with sshd, a login node, and a pod to log in from. Alice and Bob have logged in once."""
    extra = lines_of(load_config(stacks.dev()), "Prolog", "Epilog") + IMPATIENT
    sandbox = slurm_cluster(slurm_version, config=minimal_config(slurm_version, extra, **IN_JAIL), workers=0, jail=True)
    workers = WorkerSsh(sandbox)
    for name in NODES:
        workers.start_worker(name)
    sandbox.wait_for_nodes(len(NODES))
    start_client(sandbox)
    declare(sandbox, UIDS)
    start_login(sandbox, before=workers.show_key)
    for name in NODES:
        workers.start(name, USER_LIMITS=f"nofile={FILES}")
    for user in UIDS:
        assert login(sandbox, user, "true") == (0, "")
    return sandbox


def ssh(cluster: SlurmSandbox, user: str, host: str, command: str, stdin: str | None = None) -> tuple[int, str]:
    """(exit code, output) of a command, from the pod `client`."""
    done = cluster.pods["client"].run(["ssh", *OPTIONS, f"{user}@{host}", command], stdin=stdin)
    return done.returncode, done.stdout + done.stderr


def login(cluster: SlurmSandbox, user: str, command: str) -> tuple[int, str]:
    return ssh(cluster, user, "login-0", command)


def submit(cluster: SlurmSandbox, user: str, script: str, *options: str) -> str:
    """A running job's number."""
    code, out = login(
        cluster, user, shlex.join(["sbatch", "--parsable", "--output=/dev/null", *options, f"--wrap={script}"])
    )
    assert code == 0, out
    number = out.strip()
    wait_until(lambda: cluster.job(number).get("JobState") == "RUNNING", cluster.logs)
    return number


def end(cluster: SlurmSandbox, *jobs: str) -> None:
    cluster.run(["scancel", *jobs])
    wait_until(lambda: cluster.is_idle(*NODES), cluster.logs)


@pytest.fixture
def job(cluster: SlurmSandbox) -> Iterator[str]:
    """Alice's, on both nodes; it leaves a file in its /tmp."""
    number = submit(cluster, "alice", "srun touch /tmp/of-the-job; sleep 1000", "-N2", "--mem=100")
    wait_until(lambda: "of-the-job" in ssh(cluster, "alice", NODES[1], "ls /tmp")[1], cluster.logs)
    yield number
    end(cluster, number)


def test_who_has_a_job_is_in_it_and_nothing_looks_like_srun(cluster: SlurmSandbox, job: str) -> None:
    start_up = "echo was here >>/home/alice/log"
    assert login(cluster, "alice", f"echo {shlex.quote(start_up)} >.bashrc") == (0, "")
    look = "hostname; pwd; ls /tmp; squeue --me --steps -h -o '%i %j'; env; cat log"
    code, out = ssh(cluster, "alice", NODES[0], look)
    assert login(cluster, "alice", "rm .bashrc") == (0, "")
    assert code == 0, out
    node, home, *rest = out.splitlines()
    assert (node, home) == (NODES[0], "/home/alice")
    assert {"of-the-job", "HOME=/home/alice", "TMPDIR=/tmp"} <= {*rest}
    assert [line for line in rest if line.startswith(f"{job}.") and line.endswith(" ssh")]
    assert [line for line in rest if line.startswith(("SLURM", "PMI", "SRUN", "OMPI_", "HYDRA_"))] == []
    assert rest.count("was here") == 1, "the user's start-up file was read outside of the job, too"


def test_the_limits_of_login_nodes_hold_for_what_serves_a_connection_and_not_in_the_job(
    cluster: SlurmSandbox, job: str
) -> None:
    session = subprocess.Popen(
        cluster.pods["client"].command(["ssh", *OPTIONS, "alice@default-0", "ulimit -Hn; read line"]),
        stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert session.stdout is not None
    in_the_job = int(session.stdout.readline())
    look = "awk '/^Max open files/ {print $5}' /proc/$(pgrep -of libexec/slurmstack/ssh-[s]ession)/limits"
    served_by = cluster.pods["sshd-default-0"].run(look).stdout
    session.communicate()
    assert int(served_by) == FILES < in_the_job


def test_nobody_else_gets_in_and_who_is_refused_is_told_why(cluster: SlurmSandbox, job: str) -> None:
    client = cluster.pods["client"]
    said = client.run(["ssh", "-o", "LogLevel=INFO", *OPTIONS, "bob@default-0", "true"])
    assert said.returncode == 255
    assert "you have no job on default-0" in said.stderr

    client.run("mkdir -m 700 /jail/root/.ssh && ssh-keygen -y -f /root/key >/jail/root/.ssh/authorized_keys")
    of_root = cluster.run(
        "sbatch --parsable -w default-0 --mem=100 --output=/dev/null --wrap='sleep 1000'"
    ).stdout.strip()
    wait_until(lambda: cluster.job(of_root).get("JobState") == "RUNNING", cluster.logs)
    assert ssh(cluster, "root", NODES[0], "true")[0] == 255
    cluster.run(["scancel", of_root])

    client.run("chroot /jail passwd --quiet --lock alice")
    assert ssh(cluster, "alice", NODES[0], "true")[0] == 255
    client.run("chroot /jail usermod --password '*' alice")
    assert ssh(cluster, "alice", NODES[0], "true")[0] == 0


def test_what_goes_through_is_as_with_any_ssh(cluster: SlurmSandbox, job: str) -> None:
    client = cluster.pods["client"]
    options, there = shlex.join(OPTIONS), "alice@default-0"
    done = client.run(
        f"cd /root && head -c 3000000 /dev/urandom >data && ssh {options} {there} cat <data | cmp - data"
        f" && scp {options} data {there}:/tmp/copied && scp {options} {there}:/tmp/copied back && cmp data back"
        f" && rsync -e {shlex.quote('ssh ' + options)} data {there}:/tmp/synced"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert ssh(cluster, "alice", NODES[0], "cmp /tmp/copied /tmp/synced; exit 7") == (7, "")
    shown = type_at(
        client, ["ssh", *OPTIONS, "-t", "alice@default-0"],
        "stty columns 77; echo $(tty) $SSH_TTY $-", "stty size; seq 20000 | tail -c 6; sleep 8765 & exit 3",
    )  # fmt: skip
    assert "/dev/pts/0 /dev/pts/0 " in shown
    assert "himBH" in shown, "the shell has job control"
    assert " 77\r\n20000\r\n" in shown


def test_from_node_to_node_leads_the_key_of_the_first_login_and_no_host_is_asked_about(
    cluster: SlurmSandbox, job: str
) -> None:
    assert login(cluster, "alice", "ssh default-0 ssh default-1 hostname") == (0, "default-1\n")
    assert login(cluster, "alice", "ssh -J login-0 default-0 ssh login-0 hostname") == (0, "login-0\n")


def test_a_first_command_and_a_first_copy_make_a_key_and_print_nothing(cluster: SlurmSandbox) -> None:
    anew = "ls .ssh/id_*; grep -c . .ssh/authorized_keys; rm -r .ssh"
    assert login(cluster, "bob", anew) == (0, ".ssh/id_ed25519\n.ssh/id_ed25519.pub\n1\n")
    done = cluster.pods["client"].run(["scp", *OPTIONS, "/etc/hostname", "bob@login-0:copied"])
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    home = cluster.pods["client"].root / "jail/home/bob"
    assert (home / "copied").exists()
    assert (home / ".ssh/id_ed25519").exists()


def test_a_daemon_outlives_its_session_and_all_ends_with_the_job(cluster: SlurmSandbox) -> None:
    number = submit(cluster, "alice", "sleep 1000", "-w", NODES[0], "--mem=100")
    assert ssh(cluster, "alice", NODES[0], "nohup sleep 4567 >/dev/null 2>&1 </dev/null & echo up") == (0, "up\n")
    assert "sleep 4567" in ssh(cluster, "alice", NODES[0], "pgrep -a sleep")[1]
    client = cluster.pods["client"]
    forwarding, session = (
        subprocess.Popen(
            client.command(["ssh", *OPTIONS, *arguments]), stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        for arguments in (["-N", "alice@default-0"], ["alice@default-0", "echo up; sleep 1000"])
    )
    assert session.stdout is not None
    assert session.stdout.readline() == b"up\n"
    newer = submit(cluster, "alice", "sleep 1000", "-w", NODES[1], "--mem=100", ":", "-w", NODES[0], "--mem=100")
    steps = ssh(cluster, "alice", NODES[0], "squeue --me --steps -h -S i -o '%i %j'")[1].split("\n")
    (in_newer,) = (step for step in steps if step.endswith(" ssh") and not step.startswith(f"{number}."))
    assert in_newer.startswith((f"{newer}+1.", f"{int(newer) + 1}.")), "the component that has the node"
    cluster.run(["scancel", number])
    wait_until(lambda: session.poll() is not None, cluster.logs)
    assert forwarding.poll() is None, "a job of hers is there"
    cluster.run(["scancel", newer])
    wait_until(lambda: forwarding.poll() is not None, cluster.logs)
    assert forwarding.returncode
    assert session.returncode
    assert "sleep 4567" not in cluster.pods[NODES[0]].run("pgrep -a sleep").stdout
    wait_until(lambda: cluster.is_idle(*NODES), cluster.logs)


def test_a_session_ends_with_its_client_and_has_no_right_over_who_ends_it_else(cluster: SlurmSandbox, job: str) -> None:
    client, sshd = cluster.pods["client"], cluster.pods["sshd-default-0"]
    session = subprocess.Popen(
        client.command(["ssh", *OPTIONS, "alice@default-0", "echo up; sleep 4321"]),
        stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert session.stdout is not None
    assert session.stdout.readline() == b"up\n"

    def rights(process: str, which: str) -> int:
        return int(sshd.run(f"sed -n 's/^{which}://p' /proc/$(pgrep -of {process})/status").stdout, 16)

    # What root in the jail would have here at most. Whoever has more may not be traced (ptrace(2)).
    assert rights("worker-[s]shd", "CapPrm") & ~rights("libexec/slurmstack/ssh-[s]ession", "CapBnd")
    client.run("pkill -KILL -f 'sleep 432[1]'")
    wait_until(lambda: not sshd.run("pgrep -f libexec/slurmstack/ssh-[s]ession").stdout, cluster.logs)
    session.wait()
    assert "sleep 4321" in cluster.pods[NODES[0]].run("pgrep -a sleep").stdout, "a program goes on, as with any sshd"
