"""What a guest machine promises to the tests in it: control groups of version 2 as a Kubernetes node has them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from slurm.rights import INTO_JAIL
from tests.machine.machine import Machine
from tests.machine.oci import ContainerSpec
from tests.machine.pod import Container, Pods
from tests.slurm.pod import wait_until
from tests.stacks import ROOT

HOG = "import time; kept = [bytearray(b'x' * 2**20) for _ in range(400)]; time.sleep(600)"
"""Takes 400 MiB."""

BOOTS_AND_WAITS = """
import time
from tests.machine.rootfs import root_file_systems
from tests.machine.machine import Machine
with Machine(root_file_systems("24.11", ["worker"])) as machine:
    print(machine.qemu_pid, machine.work, flush=True)
    time.sleep(600)
"""


def worker(name: str, *command: str, cpuset: str = "") -> ContainerSpec:
    """A container with a worker's rights and 128 MiB."""
    return ContainerSpec(
        name=name, image="worker-24.11", command=command or ("sleep", "600"), capabilities=INTO_JAIL, memory_mib=128,
        cpuset=cpuset,
    )  # fmt: skip


def events(container: Container) -> dict[str, int]:
    lines = container.read("memory.events").splitlines()
    return {name: int(count) for name, count in (line.split() for line in lines)}


def test_the_machine_has_all_controllers_and_nothing_of_version_1(machine: Machine) -> None:
    enabled = machine.run("cat /sys/fs/cgroup/cgroup.subtree_control", check=True).stdout.split()
    mounts = machine.run("cat /proc/mounts", check=True).stdout.splitlines()

    assert {"cpuset", "cpu", "io", "memory", "hugetlb", "pids"} <= {*enabled}
    (hierarchy,) = {line for line in mounts if " cgroup" in line and " /sys/fs/cgroup " in line}
    assert "nsdelegate" in hierarchy
    assert not [line for line in mounts if " cgroup " in line]


def test_a_container_sees_its_own_control_group_and_cannot_write_it(pods: Pods) -> None:
    container = pods.add("cgroups").start(worker("slurmd", cpuset="2-3"))
    script = """
        cat /proc/1/cgroup; cat /sys/fs/cgroup/memory.max; nproc
        mkdir /sys/fs/cgroup/own || echo refused; echo max > /sys/fs/cgroup/memory.max || echo refused
    """
    done = container.exec(script)

    assert done.stdout.split() == ["0::/", str(128 * 2**20), "2", "refused", "refused"], done.stderr
    assert done.stderr.count("Read-only file system") == 2
    assert container.read("memory.oom.group") == "1\n"
    assert container.cgroup.startswith("/sys/fs/cgroup/kubepods/")


def test_a_container_has_the_rights_of_a_worker_and_a_filter_of_calls(pods: Pods) -> None:
    container = pods.add("rights").start(worker("slurmd"))
    status = container.exec("grep -E '^(Cap|NoNew|Seccomp:)' /proc/self/status; ulimit -n").stdout.split()

    assert status[:12] == [
        "CapInh:", "0000000000000000", "CapPrm:", "00000000a02401fb", "CapEff:", "00000000a02401fb",
        "CapBnd:", "00000000a02401fb", "CapAmb:", "0000000000000000", "NoNewPrivs:", "0",
    ]  # fmt: skip
    assert status[12:] == ["Seccomp:", "2", "1048576"]


def test_the_kernel_kills_all_of_a_container_that_takes_too_much(pods: Pods) -> None:
    script = f'python3 -c "{HOG}"; echo hog ended with $?; sleep 600'
    container = pods.add("together").start(worker("hog", "sh", "-c", script))

    assert container.wait() == 128 + signal.SIGKILL
    assert container.processes() == []
    assert events(container)["oom_group_kill"] == 1
    assert "hog ended" not in container.logs()


def test_no_machine_outlives_the_process_that_started_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BOOTS_AND_WAITS], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        pid, _, work = process.stdout.readline().partition(" ")
        try:
            assert Path(f"/proc/{pid}").exists()
        finally:
            process.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "QEMU to end", 10)
    for left in Path(work.strip()).glob("*"):
        left.unlink()
    Path(work.strip()).rmdir()
