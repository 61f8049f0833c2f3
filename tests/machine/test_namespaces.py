"""Containers in jobs, under the rights and the list of system calls that a pod of the program has."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from shlex import quote

import pytest

from tests.machine.slurm_machine import SlurmMachine
from tests.slurm.cluster import require_images
from tests.slurm.minimal import IN_JAIL

EXTRA = "DebugFlags=NO_CONF_HASH\nEpilog=/usr/libexec/slurmstack/health-epilog\n"
ALICE = 10001
STEP = "srun -Q -n1 --chdir=/tmp --user-namespace"


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmMachine]:
    """A worker of a pool that allows them."""
    require_images("24.11")
    with SlurmMachine("24.11", workers=0, memory="800Mi", files=IN_JAIL, extra=EXTRA) as started:
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


def test_the_job_mount_is_all_there_is_and_is_kept_to_its_cgroup(slurm: SlurmMachine) -> None:
    """The task sees what one without the option sees, is in the same cgroup, and none that can be written."""
    # A copy of a mount that is shared follows it: that is no other mount.
    same = "sed -E 's/ (shared|master|propagate_from):[0-9]+//g' /proc/self/mountinfo | cut -d' ' -f5,9- | sort"
    look = f"{same}; sed 's,[^/]*/step_,JOB/step_,' /proc/self/cgroup; id"
    told = alice(slurm, f"{STEP} bash -c {quote(look)}")
    assert "/task_0" in told
    assert told == alice(slurm, f"{STEP.removesuffix(' --user-namespace')} bash -c {quote(look)}")
    assert alice(slurm, f"{STEP} unshare -Ur id -u") == "0\n"
    tries = (
        "mount -o remount,bind,rw /sys/fs/cgroup; mkdir /sys/fs/cgroup/x; mount -t cgroup2 none /mnt; umount -l /tmp"
    )
    script = tries.replace(";", " && echo made;")
    assert "made" not in alice(slurm, f"{STEP} unshare -Ur --mount bash -c {quote(script)}")
