"""Figures of jobs while they run, as jobstats asks for them, and seff when they have ended; with real daemons."""

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
GAMES = 5
"""Number of a user who is in every Debian system."""

JOBSTATS = (
    "cgroup_memory_total_bytes", "cgroup_memory_rss_bytes", "cgroup_memory_shmem_bytes", "cgroup_cpu_total_seconds",
    "cgroup_cpus",
)  # fmt: skip
"""What jobstats asks Prometheus for, each with {cluster=,jobid=,step='',task=''}."""

GET = "exec 3<>/dev/tcp/{host}/9306 && printf 'GET {path} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3 && cat <&3"
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


def get(cluster: AccountingSandbox, *, pod: str = "controller-0", host: str = NODE, path: str = "/metrics") -> str:
    """What somebody in a pod is answered."""
    return cluster.run(GET.format(host=host, path=path), pod=pod).stdout


def figures(cluster: AccountingSandbox, job: str) -> dict[str, float]:
    """Those of a job, as a query of jobstats finds them."""
    labels = re.escape(f'{{jobid="{job}",step="",task=""}}')
    return {
        found[1]: float(found[2]) for found in re.finditer(rf"^(\w+){labels} (\S+)\r?$", get(cluster), re.MULTILINE)
    }


def submit(cluster: AccountingSandbox, asks: str, command: str) -> str:
    who = "--uid=games --gid=games --account=physics"
    done = cluster.run(f"cd /tmp; sbatch --parsable {who} --output=/dev/null {asks} --wrap '{command}'")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def seff(cluster: AccountingSandbox, job: str) -> str:
    program = 'import sys; sys.path.insert(0, "/tmp"); import seff; sys.exit(seff.main())'
    done = cluster.run(["python3", "-c", program, job])
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def working(cluster: AccountingSandbox) -> str:
    """A job that has used three seconds of one of its two CPUs, and holds 128 MiB."""
    program = WORK.format(seconds=600)
    job = submit(cluster, "--ntasks=2 --mem=512M --acctg-freq=task=1", f'python3 -c "exec(\\"{program}\\")"')
    wait_until(
        lambda: figures(cluster, job).get("cgroup_cpu_total_seconds", 0) >= 3,
        lambda: f"{get(cluster)}\n{cluster.run('squeue').stdout}{cluster.logs()}",
    )
    return job


def test_a_running_job_has_all_figures_that_jobstats_asks_for(cluster: AccountingSandbox, working: str) -> None:
    found = figures(cluster, working)
    assert set(JOBSTATS) <= set(found)
    assert 3 <= found["cgroup_cpu_total_seconds"] < 6
    seconds = found["cgroup_cpu_user_seconds"] + found["cgroup_cpu_system_seconds"]
    assert found["cgroup_cpu_total_seconds"] == pytest.approx(seconds)
    assert 128 <= found["cgroup_memory_rss_bytes"] / 2**20 < 200
    assert found["cgroup_memory_total_bytes"] == MEMORY_MIB * 2**20
    assert found["cgroup_cpus"] >= 1
    assert f'cgroup_uid{{jobid="{working}"}} {GAMES}\n' in get(cluster)


def test_a_process_that_calls_itself_slurmstepd_makes_no_job(cluster: AccountingSandbox, working: str) -> None:
    fake = 'cp /bin/sleep /tmp/slurmstepd; (exec -a "slurmstepd: [4711.0]" /tmp/slurmstepd 600) & wait'
    started = f"setpriv --reuid={GAMES} --clear-groups bash -c '{fake}' >/dev/null 2>&1 &"
    cluster.run(started, pod=NODE)
    wait_until(lambda: "[4711.0]\x00600\x00" in cluster.run("cat /proc/[0-9]*/cmdline", pod=NODE).stdout, cluster.logs)
    assert working in get(cluster)
    assert "4711" not in get(cluster)


def test_who_asks_from_within_the_pod_is_told_nothing(cluster: AccountingSandbox, working: str) -> None:
    assert working in get(cluster)
    for host in ("127.0.0.1", NODE):
        assert get(cluster, pod=NODE, host=host) == ""


def test_there_is_nothing_but_figures_and_who_says_nothing_keeps_nobody_waiting_for_long(
    cluster: AccountingSandbox, working: str
) -> None:
    assert " 404 " in get(cluster, path="/etc/passwd")
    silent = f"exec 3<>/dev/tcp/{NODE}/9306; sleep 30"
    cluster.run(f"{silent} >/dev/null 2>&1 & {silent} >/dev/null 2>&1 &")
    # From the same address, which is refused for a while for that.
    wait_until(lambda: working in get(cluster), cluster.logs)


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


def test_seff_says_that_a_job_is_not_there(cluster: AccountingSandbox) -> None:
    assert seff(cluster, "999999") == "Job not found.\n"
    assert seff(cluster, "1; true").startswith("Usage: seff")
