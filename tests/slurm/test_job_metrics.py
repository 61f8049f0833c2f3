"""Who serves figures of running jobs, and seff of ended ones; with real daemons.

The figures themselves take cgroups of version 2: tests/machine/test_usage.py.
"""

from __future__ import annotations

import re
import shutil

import pytest

from tests.slurm.accounting import AccountingSandbox, sacctmgr
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import accounting_config
from tests.slurm.pod import wait_until
from tests.stacks import ROOT

NODE = "default-0"
MEMORY_MIB = 1000

GET = "exec 3<>/dev/tcp/default-0/9306 && printf 'GET {path} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3 && cat <&3"
WORK = "import time; held = bytearray(128 * 2**20)\\nwhile time.process_time() < 3: pass\\ntime.sleep({seconds})"


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> AccountingSandbox:
    """One worker that serves figures, and one user with an account."""
    node = f"CPUs=2 RealMemory={MEMORY_MIB} Feature=default"
    config = accounting_config(slurm_version)
    sandbox = slurm_cluster(slurm_version, config=config, workers=0, node_conf=node, kind=AccountingSandbox)
    sandbox.start_worker_on(NODE, env={"JOB_METRICS": "yes"})
    sandbox.wait_for_nodes(1)
    for command in ("add account physics", "add user games account=physics"):
        sacctmgr(sandbox, command)
    shutil.copy(ROOT / "images/jail/seff.py", sandbox.controller.root / "tmp/seff.py")
    return sandbox


def submit(cluster: AccountingSandbox, asks: str, command: str) -> str:
    who = "--uid=games --gid=games --account=physics"
    done = cluster.run(f"cd /tmp; sbatch --parsable {who} --output=/dev/null {asks} --wrap '{command}'")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def seff(cluster: AccountingSandbox, job: str) -> str:
    program = 'import sys; sys.path[:0] = ["/tmp", "/usr/lib/slurmstack"]; import seff; sys.exit(seff.main())'
    done = cluster.run(["python3", "-c", program, job])
    return done.stdout + done.stderr


def test_there_is_nothing_but_figures(cluster: AccountingSandbox) -> None:
    def get(path: str) -> str:
        return cluster.run(GET.format(path=path)).stdout.partition("\n")[0].strip()

    wait_until(lambda: get("/metrics").endswith(" 200 OK"), cluster.logs)
    assert " 404 " in get("/etc/passwd")


def test_it_is_nobody_without_rights_who_serves(cluster: AccountingSandbox) -> None:
    found = cluster.run(
        "for p in /proc/[0-9]*; do grep -q ^Uid:.65534 $p/status && grep -E '^(Uid|CapPrm|CapEff):' $p/status; done",
        pod=NODE,
    ).stdout.split("\n")
    lines = [line.split() for line in found if line]
    assert lines
    assert {line[0]: set(line[1:]) for line in lines} == {
        "Uid:": {"65534"}, "CapPrm:": {"0000000000000000"}, "CapEff:": {"0000000000000000"},
    }  # fmt: skip


def test_seff_says_what_a_job_used(cluster: AccountingSandbox) -> None:
    program = WORK.format(seconds=2)
    cluster.run("scancel --user=games")
    wait_until(lambda: not cluster.run("squeue --noheader").stdout, cluster.logs)
    job = submit(cluster, "--ntasks=2 --mem=256M --acctg-freq=task=1", f'python3 -c "exec(\\"{program}\\")"')
    wait_until(
        lambda: "COMPLETED" in seff(cluster, job) and "CPU Utilized: 00:00:0" in seff(cluster, job),
        lambda: f"{seff(cluster, job)}{cluster.logs()}",
    )
    said = dict(line.split(": ", 1) for line in seff(cluster, job).splitlines())
    assert list(said) == [
        "Job ID", "Cluster", "User/Group", "State", "Nodes", "Cores per node", "CPU Utilized", "CPU Efficiency",
        "Job Wall-clock time", "Memory Utilized", "Memory Efficiency",
    ]  # fmt: skip
    assert (said["Job ID"], said["Nodes"], said["Cores per node"]) == (job, "1", "2")
    assert said["User/Group"] == "games/games"
    assert said["State"] == "COMPLETED (exit code 0)"
    assert said["CPU Utilized"] in {"00:00:03", "00:00:04", "00:00:05"}, "with the start of Python, and not twice"
    assert re.fullmatch(r"1[2-9]\d\.\d\d MB", said["Memory Utilized"])
    assert re.fullmatch(r"[5-7]\d\.\d\d% of 256\.00 MB \(256\.00 MB/node\)", said["Memory Efficiency"])
