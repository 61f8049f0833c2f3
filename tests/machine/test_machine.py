"""What a guest machine promises to the tests in it: control groups of version 2 as a Kubernetes node has them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


def worker(name: str, *command: str, oom_group: bool = True, cpuset: str = "") -> ContainerSpec:
    """A container with a worker's rights and 128 MiB."""
    return ContainerSpec(
        name=name, image="worker-24.11", command=command or ("sleep", "600"), capabilities=INTO_JAIL, memory_mib=128,
        oom_group=oom_group, cpuset=cpuset,
    )  # fmt: skip


def waiting_for_a_hog(pods: Pods, pod: str, *, oom_group: bool) -> Container:
    """A container whose first process waits for another one, which takes more memory than it may."""
    script = f'python3 -c "{HOG}"; echo hog ended with $?; sleep 600'
    return pods.add(pod).start(worker("hog", "sh", "-c", script, oom_group=oom_group))


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


def test_it_has_sockets_and_threads_as_asked_for(machine: Machine) -> None:
    shown = machine.run(["chroot", "/images/worker-24.11", "lscpu", "--parse=socket,core,cpu"], check=True).stdout
    rows = [line.split(",") for line in shown.splitlines() if not line.startswith("#")]

    assert len(rows) == 4
    assert len({socket for socket, _, _ in rows}) == 2
    assert len({core for _, core, _ in rows}) == 2


def test_a_command_has_its_own_status_streams_and_time(machine: Machine) -> None:
    done = machine.run("cat; echo wrong >&2; exit 3", stdin="given\n")
    assert (done.returncode, done.stdout, done.stderr) == (3, "given\n", "wrong\n")

    with pytest.raises(subprocess.TimeoutExpired) as stopped:
        machine.run("echo begun; sleep 100", timeout=1)
    assert stopped.value.output == b"begun\n"
    assert machine.run("pgrep -f 'sleep 100$'").stdout == ""

    content = os.urandom(3_000_000)
    machine.put("/tmp/some/file", content, mode=0o600)
    assert machine.get("/tmp/some/file") == content
    assert machine.run("stat -c %a /tmp/some/file").stdout == "600\n"


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
    container = waiting_for_a_hog(pods, "together", oom_group=True)

    assert container.wait() == 128 + signal.SIGKILL
    assert container.processes() == []
    assert events(container)["oom_group_kill"] == 1
    assert "hog ended" not in container.logs()


def test_without_a_group_it_kills_the_one_that_took_it(pods: Pods) -> None:
    container = waiting_for_a_hog(pods, "apart", oom_group=False)

    wait_until(lambda: "hog ended with 137" in container.logs(), container.logs, 60)
    assert container.exit_status is None
    found = events(container)
    assert (found["oom_kill"], found["oom_group_kill"]) == (1, 0)


def test_what_exec_starts_is_gone_when_its_time_is_over(pods: Pods) -> None:
    container = pods.add("late").start(worker("slurmd"))
    with pytest.raises(subprocess.TimeoutExpired):
        container.exec("sleep 501 & sleep 502", timeout=5)

    wait_until(lambda: "sleep 50" not in container.look("ps -ef | grep '[s]leep 50'").stdout, "exec to end", 10)
    assert container.exit_status is None


def test_stopping_a_container_asks_first(pods: Pods) -> None:
    polite = pods.add("polite").start(worker("slurmd", "sh", "-c", "trap 'exit 7' TERM; while :; do sleep 0.1; done"))
    assert polite.stop() == 7

    deaf = pods.add("deaf").start(worker("slurmd", "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"))
    assert deaf.stop(grace_s=2) == 128 + signal.SIGKILL


def test_pods_find_each_other_by_name_and_leave_nothing(machine: Machine, pods: Pods) -> None:
    server = "import socket; one, _ = socket.create_server(('', 7000)).accept(); one.sendall(b'hello')"
    pods.add("server").start(worker("slurmd", "python3", "-c", server))
    client = pods.add("client").start(worker("slurmd"))
    connect = "import socket; print(socket.create_connection(('server', 7000)).recv(9).decode())"
    wait_until(lambda: client.look(["python3", "-c", connect]).stdout == "hello\n", "the server to answer", 30)

    pods.remove("server")

    left = machine.run("find /sys/fs/cgroup -name '*server*'; ls /var/lib/pods; mount", check=True).stdout
    assert "server" not in left
    assert "server" not in client.look("cat /etc/hosts").stdout


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
