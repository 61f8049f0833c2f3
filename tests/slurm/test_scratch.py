"""A worker whose /tmp is a directory of the machine's own disk, beside another pod's, with real daemons."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import load_config
from slurm.sizing import node_conf
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import TOKENS, lines_of, minimal_config
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox
from tests.stacks import with_change

PLUGSTACK = "required /usr/lib/slurmstack/jail.so root=/jail\n"
USERS = {"alice": 10001, "bob": 10002}
NODE = "default-0"
DISK_MIB = 1000
"""Of the disk; the stack file says 1 GiB, which is a little more, as of every disk that has a file system."""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk that is mounted on the machine, with what a worker that crashed has left, and with a neighbour's."""
    directory = tmp_path_factory.mktemp("nvme")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(directory)], check=True)
    for pod in (NODE, "default-1"):
        job = directory / "slurm" / pod / "jobs/1"
        job.mkdir(parents=True, mode=0o700)
        (job / "secret").write_text("of another")
        os.chown(job, USERS["bob"], USERS["bob"])
    (directory / "slurm" / NODE / "link").symlink_to("/etc")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def scratch_env(version: str, size: str = "1Gi") -> dict[str, str]:
    """What the pod of a pool with such a scratch is told."""
    scratch = {"size": size, "host_path": "/mnt/nvme"}
    pool = {"size": 1, "resources": {"cpus": 4, "memory": "1Gi"}, "scratch": scratch}
    stack = with_change(with_change(stacks.dev(), "worker_nodes.default", pool), "slurm.version", version)
    return {"SCRATCH": "host_path", "NODE_CONF": node_conf("default", load_config(stack).worker_nodes["default"])}


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str, disk: Path) -> SlurmSandbox:
    """One worker with the jail, whose /tmp is its part of the disk. Users ask from the controller."""
    known = {
        "passwd": "".join(f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash\n" for name, uid in USERS.items()),
        "group": "".join(f"{name}:x:{uid}:\n" for name, uid in USERS.items()),
    }
    extra = lines_of(load_config(stacks.dev()), *TOKENS, "Prolog", "Epilog")
    config = minimal_config(slurm_version, extra, **{"plugstack.conf": PLUGSTACK}, **known)
    sandbox = slurm_cluster(slurm_version, config=config, workers=0, jail=True)
    for name, file in (("passwd", known["passwd"]), ("group", known["group"])):
        for root in (sandbox.jail, sandbox.controller.root):
            with (root / "etc" / name).open("a") as text:
                text.write(file)
    sandbox.start_worker_on(NODE, binds={disk / "slurm" / NODE: "/tmp"}, env=scratch_env(slurm_version))
    sandbox.wait_for_nodes(1)
    return sandbox


@pytest.fixture(autouse=True)
def nothing_left(cluster: SlurmSandbox, disk: Path) -> Iterator[None]:
    """Whatever a test does, of its jobs nothing is on the disk afterwards."""
    yield
    cluster.run("scancel --user=alice; scancel --user=bob")
    wait_until(lambda: not cluster.run("squeue --noheader").stdout.strip(), cluster.logs)
    wait_until(lambda: on_disk(disk) == ["jobs"], lambda: f"{on_disk(disk)}\n{cluster.logs()}")


def on_disk(disk: Path) -> list[str]:
    """What is in the worker's part of the disk."""
    top = disk / "slurm" / NODE
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def worker(cluster: SlurmSandbox) -> Pod:
    return cluster.pods[NODE]


def user(cluster: SlurmSandbox, command: str, *, name: str = "alice", fails: bool = False) -> str:
    """What a command of a user's prints, who is at the controller."""
    become = f"setpriv --reuid={USERS[name]} --regid={USERS[name]} --clear-groups env HOME=/tmp USER={name}"
    done = cluster.run(f"cd /tmp; exec {become} bash -c '{command}' 2>&1")
    assert (done.returncode != 0) == fails, f"{command}: {done.stdout}{done.stderr}\n{cluster.logs()}"
    return done.stdout


def start(cluster: SlurmSandbox, name: str = "alice") -> str:
    submit = 'sbatch --parsable -n1 --output=/dev/null --chdir=/ --wrap "sleep 1000"'
    job = user(cluster, submit, name=name).strip()
    wait_until((worker(cluster).root / f"run/slurmstack/cells/{job}").exists, cluster.logs)
    return job


def within(cluster: SlurmSandbox, job: str, command: str, name: str = "alice") -> str:
    """What a command prints as another step of a user's job."""
    return user(cluster, f'srun -Q --jobid={job} --overlap -n1 --chdir=/ bash -c "{command}"', name=name)


def test_what_a_crashed_worker_has_left_goes_and_the_neighbour_s_stays(cluster: SlurmSandbox, disk: Path) -> None:
    user(cluster, "srun -Q -n1 --chdir=/ true")  # which makes the directory for all jobs
    wait_until(lambda: on_disk(disk) == ["jobs"], lambda: f"{on_disk(disk)}\n{cluster.logs()}")
    assert "what earlier jobs have left in the scratch" in worker(cluster).log("slurmd")
    assert (disk / "slurm/default-1/jobs/1/secret").read_text() == "of another"


def test_tmp_of_a_job_is_on_the_disk_and_as_large_as_it(cluster: SlurmSandbox, disk: Path) -> None:
    job = start(cluster)
    told = within(
        cluster, job, "echo \\$TMPDIR; stat -c %U:%a /tmp; df -m --output=size /tmp | tail -n 1; echo here > /tmp/file"
    )
    assert told.split() == ["/tmp", "alice:700", str(DISK_MIB)]
    assert (disk / "slurm" / NODE / "jobs" / job / "file").read_text() == "here\n"
    shown = within(cluster, job, "cat /proc/self/mountinfo").splitlines()
    options = [set(line.split()[5].split(",")) for line in shown if line.split()[4] == "/tmp"]
    assert options, shown
    assert all({"nosuid", "nodev"} <= found for found in options), "no program changes its rights, no file is a device"
    user(cluster, f"scancel {job}")
    wait_until(lambda: on_disk(disk) == ["jobs"], lambda: f"{on_disk(disk)}\n{cluster.logs()}")


def test_a_job_reaches_neither_another_s_directory_nor_the_disk_itself(cluster: SlurmSandbox, disk: Path) -> None:
    job, other = start(cluster), start(cluster, "bob")
    within(cluster, other, "echo private > /tmp/marker; chmod 777 /tmp /tmp/marker", "bob")
    assert (disk / "slurm" / NODE / "jobs" / other / "marker").read_text() == "private\n", "it is there to be found"
    places = "/tmp /run /dev /proc/[0-9]*/root/tmp /proc/[0-9]*/cwd/tmp"
    assert (
        within(cluster, job, f"find / -xdev -name marker 2>/dev/null; find {places} -name marker 2>/dev/null; true")
        == ""
    )
    for path in (f"/tmp/jobs/{other}", f"/tmp/../jobs/{other}", "/tmp/..", "/tmp/../default-1", "/mnt/nvme"):
        attempts = f"cat {path}/marker {path}/*/secret 2>/dev/null; echo x 2>/dev/null > {path}/x; true"
        assert within(cluster, job, attempts) == "", path
    within(cluster, job, "mkdir -p /tmp/jobs/1; echo x > /tmp/jobs/1/x")
    assert [str(path.relative_to(disk)) for path in disk.rglob("x")] == [f"slurm/{NODE}/jobs/{job}/jobs/1/x"]


def test_jobs_find_a_node_by_the_room_that_it_has(cluster: SlurmSandbox) -> None:
    assert f"TmpDisk={DISK_MIB} " in cluster.run(f"scontrol show node {NODE}").stdout
    assert user(cluster, f"srun -Q -n1 --tmp={DISK_MIB}M --chdir=/ echo ran") == "ran\n"
    told = user(cluster, f"srun -Q -n1 --tmp={DISK_MIB + 1}M --chdir=/ echo ran", fails=True)
    assert "Requested node configuration is not available" in told
    cluster.wait_for_idle(NODE)  # it is not drained for what it has


def test_a_disk_that_is_not_mounted_keeps_the_worker_from_starting(
    cluster: SlurmSandbox, slurm_version: str, tmp_path: Path
) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(tmp_path)], check=True)
    try:
        pod = cluster.start_worker_on("default-2", binds={tmp_path: "/tmp"}, env=scratch_env(slurm_version))
        wait_until(lambda: pod.processes[-1].poll() is not None, cluster.logs)
        assert "has 64 MiB on this machine, and scratch.size says 1024 MiB: mount the disk" in pod.log("slurmd")
        assert "default-2" not in cluster.node_states()
    finally:
        cluster.remove_pod("default-2")
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_worker_that_leaves_leaves_nothing_on_the_disk(cluster: SlurmSandbox, slurm_version: str, disk: Path) -> None:
    part = disk / "slurm/default-3"
    part.mkdir()
    env = scratch_env(slurm_version)
    pod = cluster.start_worker_on("default-3", binds={part: "/tmp"}, env=env)
    cluster.wait_for_nodes(2)
    (part / "of-a-user").write_text("left")
    done = pod.run("/usr/libexec/slurmstack/leave", env=env)
    assert done.returncode == 0, done.stderr
    assert not list(part.iterdir())
    cluster.remove_pod("default-3")
    part.rmdir()
