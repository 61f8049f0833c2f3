"""ssh to the nodes of one's job on real Kubernetes: from a login node, through it, and not without a job.

What a session may and may not do: tests/slurm/test_worker_ssh.py.
"""

from __future__ import annotations

import subprocess

from cli.commands.access import ssh_arguments, ssh_program
from components.secrets import WORKER_HOST_KEY
from slurm.names import SSH_PORT
from tests.e2e.harness import SlurmOnKubernetes, wait_until


def through_login(slurm: SlurmOnKubernetes, node: str, command: str) -> str:
    """What a command prints on a node, with ssh from outside that jumps over the login Service."""
    login = [ssh_program(is_local=True), *ssh_arguments(slurm.directory / "known_hosts", str(slurm.key), SSH_PORT)]
    proxy = " ".join([*login, "-W", "%h:%p", f"alice@{slurm.login_address}"])
    public = slurm.kubectl.items("configmap", WORKER_HOST_KEY, "-n", slurm.namespace)[0]["data"]
    known = slurm.directory / "known_workers"
    known.write_text("".join(f"{node} {line}\n" for line in public.values()))
    own = ["-i", str(slurm.key), "-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={known}", "-o", "BatchMode=yes"]
    argv = [login[0], *own, "-o", f"ProxyCommand={proxy}", f"alice@{node}", command]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL)
    return done.stdout + done.stderr


def test_who_has_a_job_on_a_node_gets_into_it_and_leaves_with_it(two_nodes: SlurmOnKubernetes) -> None:
    slurm, in_tmp = two_nodes, "hostname; cat /tmp/of-the-job"
    refused = slurm.ssh("ssh default-0 hostname 2>&1; echo $?", check=False).splitlines()
    assert refused[-1] == "255"
    assert "default-0" not in refused

    job = slurm.submit("echo mine > /tmp/of-the-job; sleep 600", "--nodelist=default-0")
    slurm.await_job(job, "RUNNING")
    wait_until(
        lambda: slurm.ssh(f"ssh default-0 '{in_tmp}'", check=False).split() == ["default-0", "mine"],
        lambda: slurm.ssh(f"ssh -v default-0 '{in_tmp}' 2>&1", check=False),
    )
    assert through_login(slurm, "default-0", in_tmp).split() == ["default-0", "mine"]
    assert slurm.ssh("ssh default-1 hostname; echo $?", check=False).split()[-1] == "255", "no job of hers is there"

    slurm.kubectl.run("delete", "pod", "default-0", "-n", slurm.namespace, "--wait=false")
    wait_until(lambda: "DRAIN" in slurm.slurm("scontrol show node default-0"), "the node leaves after its jobs")
    assert slurm.ssh(f"ssh default-0 '{in_tmp}'").split() == ["default-0", "mine"], "until then they are reached"

    session = slurm.ssh(f"(sleep 2; scancel {job}) & ssh default-0 'sleep 300'; echo $?", check=False)
    assert session.split()[-1] != "0"
    slurm.await_idle("default-0", "default-1")
