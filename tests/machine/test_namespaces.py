"""Containers in jobs, under the rights and the list of system calls that a pod of the program has."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from shlex import quote

import pytest

from tests.machine.slurm_machine import SlurmMachine
from tests.slurm.cluster import require_images

FILES = {"plugstack.conf": "required /usr/lib/slurmstack/jail.so root=/jail\n"}
EXTRA = "DebugFlags=NO_CONF_HASH\nEpilog=/usr/libexec/slurmstack/health-epilog\n"
ALICE = 10001
PIVOT_ROOT = 155  # its number; not every version's jail has the command
STEP = "srun -Q -n1 --chdir=/tmp --user-namespace"
IMAGE = """
set -e
mkdir -p image/proc image/dev
programs="/bin/bash /bin/ls"
libraries=$(ldd $programs | grep -o '/[^ ]*' | grep -v : | sort -u)
for file in $programs $libraries; do cp --parents --dereference $file image; done
unshare -Ur --mount bash -c '
    mount --rbind /proc image/proc; mount --rbind /dev image/dev; exec chroot image /bin/bash -c "echo inside; ls /"'
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmMachine]:
    """A worker of a pool that allows them."""
    require_images("24.11")
    with SlurmMachine("24.11", workers=0, memory="800Mi", files=FILES, extra=EXTRA) as started:
        started.add_user("alice", ALICE)
        spec = copy.deepcopy(started.specs["default"])
        (slurmd,) = (one for one in spec["containers"] if one["name"] == "slurmd")
        slurmd["env"].append({"name": "CONTAINERS", "value": "yes"})
        started.kubelet.start("default-0", spec)
        started.wait_for_nodes(1)
        yield started


def alice(slurm: SlurmMachine, command: str) -> str:
    """What a command of hers prints, at the controller."""
    done = slurm.run(f"cd /; setpriv --reuid={ALICE} --regid={ALICE} --clear-groups sh -c {quote(command)} 2>&1; true")
    return str(done.stdout)


def test_a_task_makes_user_namespaces_and_enters_a_root_file_system(slurm: SlurmMachine) -> None:
    assert alice(slurm, f"{STEP} unshare -Ur id -u") == "0\n"
    told = alice(slurm, f"{STEP} bash -c {quote(IMAGE)}").split()
    assert told[0] == "inside"
    assert "etc" not in told


def test_the_cell_is_all_there_is_and_is_kept_to_its_cgroup(slurm: SlurmMachine) -> None:
    """The task sees what one without the option sees, is in the same cgroup, and none that can be written."""
    # A copy of a mount that is shared follows it: that is no other mount.
    same = "sed -E 's/ (shared|master|propagate_from):[0-9]+//g' /proc/self/mountinfo | cut -d' ' -f5,9- | sort"
    look = f"{same}; sed 's,[^/]*/step_,JOB/step_,' /proc/self/cgroup; id"
    told = alice(slurm, f"{STEP} bash -c {quote(look)}")
    assert "/task_0" in told
    assert told == alice(slurm, f"{STEP.removesuffix(' --user-namespace')} bash -c {quote(look)}")
    tries = (
        "mount -o remount,bind,rw /sys/fs/cgroup; mkdir /sys/fs/cgroup/x; mount -t cgroup2 none /mnt; umount -l /tmp"
    )
    assert "made" not in alice(
        slurm, f"{STEP} unshare -Ur --mount bash -c {quote(tries.replace(';', ' && echo made;'))}"
    )


def test_containerd_s_list_of_system_calls_has_no_pivot_root(slurm: SlurmMachine) -> None:
    """As docs/confinement.md says: why bubblewrap does not run. The day this fails, that can go."""
    call = f"libc.syscall({PIVOT_ROOT}, b'.', b'old'); print(os.strerror(ctypes.get_errno()))"
    pivot = f'python3 -c "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); {call}"'
    script = f"mount -t tmpfs none /mnt && cd /mnt && mkdir old && {pivot}"
    told = alice(slurm, f"{STEP} unshare -Ur --mount bash -c {quote(script)}")
    assert told == "Operation not permitted\n"
