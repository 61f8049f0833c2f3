"""What one user gets of a login node where the machine has version 2 of cgroups, by a real sshd and a real kernel."""

from __future__ import annotations

import copy
import re
import subprocess
from collections.abc import Iterator
from shlex import quote

import pytest

from tests.machine.kubelet import Container
from tests.machine.slurm_machine import JAIL, SlurmMachine
from tests.slurm.login import OPTIONS, private_key, public_line
from tests.slurm.pod import wait_until

USERS = {"alice": 10001, "bob": 10002}
NODE_MIB = 640
FOR_USERS = NODE_MIB * 2**20 * 3 // 4
SHARE_MIB = 300
SSH = f"ssh {OPTIONS}"


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmMachine]:
    """A controller and a login node, on which alice and bob have 300 MiB and half a CPU each."""
    with SlurmMachine("24.11", workers=0, login=True) as started:
        key = private_key()
        started.machine.put(f"{JAIL}/root/key", key, mode=0o600)
        for user, uid in USERS.items():
            started.add_user(user, uid)
            started.machine.put(f"{JAIL}/etc/ssh/authorized_keys.d/{user}", f"{public_line(key)}\n")
        start(started, f"total_memory={SHARE_MIB * 2**20} total_cpus=500")
        yield started


def start(slurm: SlurmMachine, limits: str) -> None:
    """The login node, anew; returns when one can log in."""
    spec = copy.deepcopy(slurm.specs["login"])
    (sshd,) = (one for one in spec["containers"] if one["name"] == "sshd")
    sshd["resources"]["limits"]["memory"] = f"{NODE_MIB}Mi"
    sshd["env"] = [one for one in sshd["env"] if one["name"] != "USER_LIMITS"]
    sshd["env"].append({"name": "USER_LIMITS", "value": limits})
    if "login-0" in slurm.kubelet.pods:
        slurm.kubelet.remove("login-0")
    slurm.kubelet.start("login-0", spec)
    wait_until(lambda: ssh(slurm, "bob", "true").returncode == 0, slurm.logs, 120)


def login(slurm: SlurmMachine) -> Container:
    """The container of sshd."""
    return slurm.kubelet.pods["login-0"].containers["sshd"]


def ssh(slurm: SlurmMachine, user: str, command: str) -> subprocess.CompletedProcess[str]:
    """What a command of a user's, over ssh, prints."""
    return in_jail(slurm, f"{SSH} {user}@127.0.0.1 {quote(command)}")


def in_jail(slurm: SlurmMachine, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as root of the machine in the jail's files."""
    return login(slurm).look(["chroot", "/jail", "sh", "-c", command], timeout=120)


def test_all_that_a_user_runs_is_in_one_cgroup_with_what_one_may_have(slurm: SlurmMachine) -> None:
    look = "cat /proc/self/cgroup; cd /sys/fs/cgroup; cat users/10001/memory.max users/10001/cpu.max users/memory.max"
    done = ssh(slurm, "alice", look)

    assert done.stdout.splitlines() == ["0::/users/10001", str(SHARE_MIB * 2**20), "50000 100000", str(FOR_USERS)], (
        f"{done.stderr}{slurm.logs()}"
    )
    first = login(slurm).look("cat /proc/1/cgroup").stdout.strip()
    assert first.endswith("/login-0-sshd/sshd"), "sshd itself has no share"


def test_who_takes_too_much_memory_loses_own_processes_alone(slurm: SlurmMachine) -> None:
    """By kubelet's wish all of a container is killed where its own limit is reached."""
    slurm.machine.run(f"touch {JAIL}/home/bob/stay")
    background = "nohup sh -c 'while [ -e stay ]; do sleep 1; done; echo unharmed > said' >/dev/null 2>&1 &"
    assert ssh(slurm, "bob", background).returncode == 0
    assert login(slurm).read("memory.oom.group") == "1\n"

    hog = "python3 -c 'x = bytearray(400 * 2**20)' & python3 -c 'x = bytearray(400 * 2**20)'; wait $!; echo lives on"
    done = ssh(slurm, "alice", hog)

    assert done.stdout == "lives on\n", f"{done.stderr}{slurm.logs()}"
    killed = re.search(r"^oom_kill (\d+)", login(slurm).read("users/10001/memory.events"), re.MULTILINE)
    assert killed
    assert int(killed[1]) == 2
    slurm.machine.run(f"rm {JAIL}/home/bob/stay")
    wait_until(lambda: slurm.machine.run(f"cat {JAIL}/home/bob/said").stdout == "unharmed\n", slurm.logs, 60)


def test_nobody_leaves_the_own_cgroup(slurm: SlurmMachine) -> None:
    """Not even root in the jail, whom sudo makes there: to write, it would have to mount."""
    attempts = (
        "echo $$ > /sys/fs/cgroup/sshd/cgroup.procs",
        "echo max > /sys/fs/cgroup/users/10001/memory.max",
        "mount -o remount,rw /sys/fs/cgroup",
        "mount -t cgroup2 none /mnt",
        "mkdir /sys/fs/cgroup/users/other",
    )
    script = "; ".join(f"({attempt}) 2>/dev/null && echo got through: {quote(attempt)}" for attempt in attempts)
    done = ssh(slurm, "alice", f"{script}; cat /proc/self/cgroup")
    assert done.stdout == "0::/users/10001\n", done.stdout

    limited = "setpriv --bounding-set=-all,+chown,+dac_override,+fowner,+setuid,+setgid,+kill --inh-caps=-all"
    as_root = login(slurm).exec(["chroot", "/jail", "sh", "-c", f"{limited} sh -c {quote(script + '; id -u')}"])
    assert as_root.stdout == "0\n", as_root.stdout + as_root.stderr


def test_without_a_word_of_it_a_user_has_half_of_the_memory(slurm: SlurmMachine) -> None:
    start(slurm, "nproc=4096")
    done = ssh(slurm, "alice", "cd /sys/fs/cgroup/users/10001; cat memory.max cpu.max")

    assert done.stdout.splitlines() == [str(FOR_USERS // 2), "max 100000"], done.stderr
