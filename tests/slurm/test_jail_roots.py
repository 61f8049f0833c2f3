"""Named roots with Slurm's own daemons: filled beside the first one, jobs in both, and no way from one to another."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.slurm.cluster import ClusterFactory
from tests.slurm.conftest import one_version
from tests.slurm.minimal import IN_JAIL, identity, minimal_config
from tests.slurm.pod import LIBEXEC, Pod
from tests.slurm.sandbox import SlurmSandbox

ALICE = {
    "uid": 10001, "gid": 10001, "groups": [], "shell": "/bin/bash", "ssh_authorized_keys": [], "sudo": True,
}  # fmt: skip
pytestmark = one_version

NODES = ("default-0", "default-1")
ROOT = ".slurmstack-roots/blue/root"
SHARED = json.dumps([{"source": "/shared/home", "path": "/home"}, {"source": "/shared/srv", "path": "/srv"}])


def program(pod: Pod, *argv: str, **env: str) -> tuple[int, str]:
    """Run one of the image's programs with the rights of its container."""
    done = pod.run([f"{LIBEXEC}/{argv[0]}", *argv[1:]], env=env, timeout=300)
    return done.returncode, done.stdout + done.stderr


def write_users(pod: Pod, root: str, **users: object) -> str:
    (pod.root / "config/slurm/users.json").write_text(json.dumps({"users": users}))
    code, said = program(pod, "users", "/config/slurm/users.json", JAIL_ROOT=root)
    assert code == 0, said
    return said


def fill(pod: Pod, name: str, release: str, version: str, **env: str) -> tuple[int, str]:
    return program(pod, "populate", JAIL_VERSION=version, JAIL_ROOT=name, SLURM_RELEASE=release, **env)


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """default-0 leads into the first root, default-1 into one that was filled beside it and carries /opt."""
    config = minimal_config(slurm_version, **IN_JAIL, **identity({"alice": 10001}))
    sandbox = slurm_cluster(slurm_version, config=config, workers=1, jail=True)
    tools = sandbox.add_pod("tools", "jail", {sandbox.jail: "/jail"}, munged=False)
    write_users(tools, "", alice=ALICE)
    (sandbox.jail / "opt/app").mkdir()
    (sandbox.jail / "opt/app/version").write_text("ours")
    carry = {"CARRY": '["/opt", "/usr/local"]', "CARRY_FROM": ""}
    code, said = fill(tools, "blue", slurm_version, f"{slurm_version}-new", **carry)
    assert code == 0, said
    binds = {
        sandbox.jail / ROOT: "/jail",
        sandbox.jail / "home": "/shared/home",
        sandbox.jail / "srv": "/shared/srv",
    }
    write_users(tools, "blue", alice=ALICE)
    sandbox.start_worker_on("default-1", binds=binds, env={"JAIL_ROOT": "blue", "MOUNTS": SHARED})
    sandbox.wait_for_nodes(2)
    return sandbox


def on(cluster: SlurmSandbox, node: str, command: str) -> str:
    """Run a command as alice in a job on a node, from the controller."""
    become = "cd /tmp && setpriv --reuid=10001 --regid=10001 --clear-groups"
    done = cluster.run(f"{become} srun --chdir=/ -w {node} bash -c {shlex.quote(command)}")
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{cluster.logs()}"
    return done.stdout


@pytest.mark.in_gate
def test_a_job_runs_in_the_root_of_its_pod_and_homes_are_the_same_files(
    cluster: SlurmSandbox, slurm_version: str
) -> None:
    versions = [json.loads(on(cluster, node, "cat /.slurmstack/populated"))["version"] for node in NODES]
    assert versions == [f"{slurm_version}-test", f"{slurm_version}-new"]
    on(cluster, "default-0", "echo written in the old root > /home/alice/note")
    assert on(cluster, "default-1", "cat /home/alice/note; id -un").split("\n")[:2] == [
        "written in the old root",
        "alice",
    ]
    inodes = {on(cluster, node, "stat -c %i /home/alice/note") for node in NODES}
    assert len(inodes) == 1


def test_root_in_the_first_root_neither_sees_nor_moves_the_others(cluster: SlurmSandbox) -> None:
    tries = {
        "ls -A /.slurmstack-roots": "",
        "sudo ls -A /.slurmstack-roots": "",
        "sudo mv /.slurmstack-roots /moved 2>&1 || true": "Device or resource busy",
        "sudo rm -rf /.slurmstack-roots 2>&1 || true": "Device or resource busy",
        "sudo touch /.slurmstack-roots/x 2>&1 || true": "Read-only file system",
        "sudo umount /.slurmstack-roots 2>&1 || true": "must be superuser",
        "sudo mkdir /other && sudo mount --bind / /other 2>&1 || true": "permission denied",
    }
    for command, answer in tries.items():
        said = on(cluster, "default-0", command)
        assert answer in said if answer else not said, command
    assert (cluster.jail / ROOT / "usr/bin/srun").exists()


def test_root_in_a_named_root_comes_out_of_it_nowhere(cluster: SlurmSandbox) -> None:
    for command in ("ls -d /../../../home/../.first", "ls -A /..", "ls /shared", "ls -d /.slurmstack-roots/*"):
        assert ".first" not in on(cluster, "default-1", f"sudo {command} 2>/dev/null || true")
    up = on(cluster, "default-1", "cd /home/alice && sudo ls -A ../../ && sudo ls -A /home/..")
    assert ".slurmstack-roots" not in up
