"""Whatever is lost comes back: queue, job ids, host keys and node names are as before."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess

import pytest

from cli.kubectl.client import is_true
from local import namespaces
from local.addresses import BRIDGE
from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until
from tests.switched_off import switch_off


def _host_key(slurm: SlurmOnKubernetes) -> str:
    (secret,) = slurm.kubectl.items("secret", "ssh-host-keys", "-n", slurm.namespace)
    return base64.b64decode(secret["data"]["ssh_host_ed25519_key"]).decode()


class Before:
    """What must be the same afterwards."""

    def __init__(self, slurm: SlurmOnKubernetes) -> None:
        self.slurm = slurm
        self.host_key = _host_key(slurm)
        self.pods = slurm.pod_uids()
        self.held = slurm.submit("echo held >held.out", "--hold", "--job-name=held")
        slurm.await_saved()

    def others_are_ready(self) -> bool:
        """Whether all pods are others; those of Deployments come back with other names.

        What is asked before one is ready may be answered in a container of the pod before, which ends.
        """
        now = self.slurm.pods().values()
        others = {pod["metadata"]["uid"] for pod in now}.isdisjoint(self.pods.values()) and len(now) == len(self.pods)
        return others and all(is_true(pod, "Ready") for pod in now)

    def check(self) -> None:
        slurm = self.slurm
        slurm.await_idle("default-0", "default-1")
        wait_until(lambda: len(slurm.pods()) == len(self.pods), "all pods are back")
        assert slurm.slurm("squeue --noheader --name=held --format=%i").split() == [self.held]
        assert _host_key(slurm) == self.host_key
        wait_until(lambda: "alice" in slurm.ssh("id", check=False), "login works again, with the same host key")
        wait_until(lambda: "default-0" in slurm.ssh("sinfo --noheader -N", check=False), "login nodes know slurmctld")
        slurm.slurm(f"scontrol release {self.held}")
        slurm.await_job(self.held)
        following = int(slurm.submit("true"))
        assert following > int(self.held), "job ids go on"
        assert sorted(slurm.ssh("srun -N2 hostname").split()) == ["default-0", "default-1"]


def test_all_pods_may_be_deleted_at_once(two_nodes: SlurmOnKubernetes) -> None:
    before = Before(two_nodes)
    two_nodes.kubectl.run("delete", "pods", "--all", "-n", two_nodes.namespace, "--wait=false")
    wait_until(before.others_are_ready, "all pods are others")
    before.check()


@pytest.mark.disruptive
@pytest.mark.parametrize("node", ["node-0", "node-1"])
def test_a_kubernetes_node_may_be_reset(two_nodes: SlurmOnKubernetes, node: str) -> None:
    before = Before(two_nodes)
    restarts = _restarts(two_nodes, node)
    links = _bridge_and_cable(node)
    slurmstack("local", "restart-node", node)
    wait_until(
        lambda: all(count > restarts.get(name, -1) for name, count in _restarts(two_nodes, node).items()),
        f"every pod of {node} has started again",
    )
    # A node that was reset looks idle to slurmctld until its slurmd has registered with its new address.
    wait_until(lambda: _registered(two_nodes), "every worker has registered with its present address")
    before.check()
    assert _bridge_and_cable(node) == links, "others would look for it at the old Ethernet address, for half a minute"


@pytest.mark.disruptive
def test_slurmctld_whose_machine_is_lost_is_said_in_one_sentence_and_starts_elsewhere_by_the_command_in_it(
    two_nodes: SlurmOnKubernetes,
) -> None:
    slurm, before = two_nodes, Before(two_nodes)
    machine = slurm.pods()["controller-0"]["spec"]["nodeName"]
    down = f"slurmctld is down with its machine {machine}: no other one is started while that may still run"
    condition = f"only once {machine} is really off, as two slurmctld on one state lose jobs: kubectl "
    # What it knows of accounts it writes every 5 min. One that has never done so waits for slurmdbd, which may be lost.
    slurm.slurm("scontrol reconfigure")
    wait_until((slurm.state / "assoc_mgr_state").exists, "slurmctld has saved what it knows of accounts")
    switch_off(machine)
    try:
        wait_until(lambda: down in _said(slurm, "status"), lambda: f"status says so: {_said(slurm, 'status')}")
        (said,) = (line for line in _said(slurm, "status").splitlines() if "slurmctld" in line)
        assert said.startswith(f"{down}; {condition}")
        found = _said(slurm, "doctor")
        assert found.startswith(f"1. error: {down}"), found
        assert condition in found.partition("\n2. ")[0], found

        command = shlex.split(said.rpartition(": kubectl ")[2])
        subprocess.run([slurm.kubectl.program, *command], check=True, timeout=60)
        wait_until(lambda: slurm.job_field(before.held, "JobName") == "held", "slurmctld answers, and has its queue")
        assert slurm.pods()["controller-0"]["spec"]["nodeName"] != machine
        assert down not in _said(slurm, "status") + _said(slurm, "doctor")
    finally:
        slurmstack("local", "restart-node", machine)
    wait_until(lambda: _registered(slurm), "every worker has registered with its present address")
    before.check()


def _said(slurm: SlurmOnKubernetes, verb: str) -> str:
    """What a command prints of a cluster that is not whole, for people to read: kubectl's words name long URLs."""
    done = slurmstack(verb, "--config", str(slurm.file), check=False)
    assert done.returncode == 1, done
    assert max(map(len, done.stdout.splitlines())) < 400, done.stdout
    return done.stdout


def _bridge_and_cable(node: str) -> list[str]:
    """Ethernet addresses of the host on the bridge, and of the node."""
    bridge = ["ip", "-j", "link", "show", BRIDGE]
    cable = [*namespaces.enter(node, with_mounts=False), "ip", "-j", "link", "show", "eth0"]
    shown = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in (bridge, cable)]
    return [json.loads(text)[0]["address"] for text in shown]


def _restarts(slurm: SlurmOnKubernetes, node: str) -> dict[str, int]:
    """How often the containers of each pod on a Kubernetes node have started again."""
    return {
        name: min(container["restartCount"] for container in pod["status"]["containerStatuses"])
        for name, pod in slurm.pods().items()
        if pod["spec"].get("nodeName") == node
    }


def _registered(slurm: SlurmOnKubernetes) -> bool:
    shown = slurm.slurm("scontrol show nodes --oneliner", check=False)
    addresses = dict(re.findall(r"NodeName=(\S+).* NodeAddr=(\S+)", shown))
    workers = {name: pod["status"].get("podIP") for name, pod in slurm.pods().items() if name.startswith("default-")}
    return addresses == workers
