"""The program's own pods make a working cluster in a guest machine."""

from __future__ import annotations

import pytest

from tests.machine.slurm_machine import SlurmMachine

IN_JAIL = {"plugstack.conf": "required /usr/lib/slurmstack/jail.so root=/jail\n"}

LOOK = "id -u; cat /proc/self/cgroup; ls -d /.slurmstack; cat /sys/fs/cgroup/memory.max"


@pytest.mark.versions
def test_a_job_runs_in_the_jail_of_a_worker_that_has_its_limits(slurm_version: str) -> None:
    with SlurmMachine(slurm_version, memory="512Mi", files=IN_JAIL) as slurm:
        job = slurm.run(f"srun --chdir=/ sh -c '{LOOK}'")

        uid, cgroup, jail, memory = job.stdout.split()
        assert (uid, jail, memory) == ("0", "/.slurmstack", str(512 * 2**20)), f"{job.stderr}{slurm.logs()}"
        assert cgroup.startswith("0::/system.slice/default-0_slurmstepd.scope/"), "of its own, by Slurm"
        assert slurm.worker().read("memory.oom.group") == "1\n"
