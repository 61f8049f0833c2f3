"""What jobs have used, as the program's own configuration shows it.

With one version, as a guest with a database takes seven minutes to start: that either counts by the job's cgroup is
told in test_confinement.py, and that either's records have what was counted in tests/slurm/test_usage.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote

import pytest

from images.common.slurm_runs import FIELDS, Run, parse_runs, sacct
from tests.machine.conftest import one_version
from tests.machine.slurm_machine import SlurmMachine
from tests.slurm.pod import wait_until

pytestmark = one_version

ALICE = 10001


@pytest.fixture(scope="module")
def slurm(slurm_version: str) -> Iterator[SlurmMachine]:
    """With accounting, and all of the program's own configuration."""
    with SlurmMachine(slurm_version, cpus=4, memory="800Mi", accounting=True, machine_mib=4096) as started:
        started.add_user("alice", ALICE)
        yield started


def as_alice(slurm: SlurmMachine, command: str) -> str:
    """What a command of hers prints."""
    done = slurm.run(
        f"cd /; HOME=/home/alice setpriv --reuid={ALICE} --regid={ALICE} --clear-groups sh -c {quote(command)}",
        timeout=300,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{slurm.logs()}"
    return done.stdout


def test_efficiency_tells_what_a_confined_job_has_used(slurm: SlurmMachine) -> None:
    """Counted by the job's cgroup (jobacct_gather/cgroup), unlike in tests/slurm/test_usage.py."""
    assert "jobacct_gather/cgroup" in slurm.worker().look("cat /run/slurmstack/node/slurm.conf").stdout
    hold = "held = bytearray(128 * 2**20)"
    burn = f"import time; {hold}\nwhile time.process_time() < 3: pass"
    file = f"import time; {hold}; open('/dev/shm/held', 'wb').write(held); del held; time.sleep(4)"
    asks = "sbatch --parsable --chdir=/home/alice --acctg-freq=task=1 --mem=400 -n2"
    jobs = [as_alice(slurm, f"{asks} --wrap {quote(f'python3 -c {quote(one)}')}").strip() for one in (burn, file)]

    def found() -> list[Run]:
        asked = [*sacct(FIELDS), "--allusers", f"--jobs={','.join(jobs)}"]
        return parse_runs(slurm.run(" ".join(asked)).stdout.splitlines())

    wait_until(lambda: all(job.end and job.steps for job in found()), lambda: f"{found()}{slurm.logs()}", 180)
    busy, filed = found()
    assert busy.cpu_seconds is not None
    assert busy.cpu_seconds >= 3  # the cgroup also has what it takes to start the job, which is much in this machine
    assert busy.memory_used is not None
    assert filed.memory_used is not None
    assert 128 <= busy.memory_used / 2**20 < 200
    assert 256 <= filed.memory_used / 2**20 < 330  # with the file in /dev/shm, which the job has from its memory


JOBSTATS = (
    "cgroup_memory_total_bytes", "cgroup_memory_rss_bytes", "cgroup_memory_shmem_bytes", "cgroup_cpu_total_seconds",
    "cgroup_cpus",
)  # fmt: skip
"""What jobstats asks Prometheus for, each with {cluster=,jobid=,step='',task=''}."""

METRICS = """
import sys
sys.path.insert(0, "/usr/lib/slurmstack")
from images.worker.job_metrics import answer
print(answer("default-0", "/metrics").text)
"""


def test_a_running_job_has_all_figures_that_jobstats_asks_for(slurm: SlurmMachine) -> None:
    """Who may ask for them by HTTP: tests/slurm/test_usage.py."""
    work = "import time; held = bytearray(128 * 2**20)\nwhile time.process_time() < 3: pass\ntime.sleep(600)"
    ask = f"sbatch --parsable --chdir=/home/alice --mem=400 -n2 --wrap {quote(f'python3 -c {quote(work)}')}"
    job = as_alice(slurm, ask).strip()
    series = re.compile(rf'^(\w+)\{{jobid="{job}",step="",task=""\}} (\S+)$', re.MULTILINE)

    def told() -> str:
        return slurm.worker().look(f"python3 -c {quote(METRICS)}").stdout

    def found() -> dict[str, float]:
        return {name: float(value) for name, value in series.findall(told())}

    wait_until(lambda: found().get("cgroup_cpu_total_seconds", 0) >= 3, lambda: f"{told()}{slurm.logs()}", 180)
    figures = found()
    assert set(JOBSTATS) <= set(figures)
    assert 128 <= figures["cgroup_memory_rss_bytes"] / 2**20 < 200
    assert figures["cgroup_memory_total_bytes"] == 400 * 2**20
    assert figures["cgroup_cpus"] == 2
    assert f'cgroup_uid{{jobid="{job}"}} {ALICE}\n' in told()
    slurm.run(f"scancel {job}")
