"""`slurmstack usage` on a real slurmdbd: the hours are those of Slurm's own `sreport`.

And `slurmstack efficiency` and `seff`, on the same cluster: what they say of a job is what the job has done.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cli.status.snapshot import read_job
from cli.usage.report import Summary, ask_sacct, read_runs, summarize
from images.common.slurm_runs import FIELDS, Run, sacct
from tests.slurm.accounting import AccountingSandbox, kill, sacctmgr, wait_for_accounting
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import accounting_config
from tests.slurm.pod import wait_until
from tests.stacks import ROOT

GPUS = "GresTypes=gpu\nAccountingStorageTRES=gres/gpu\n"
PEOPLE = {"games": "physics", "backup": "biology"}
"""Users who are in every Debian system, and their accounts."""

TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
MIDNIGHT = TODAY - timedelta(days=1)
"""Hours before and after it are over, so that slurmdbd has summed them up for sreport."""

RUNS = (
    ("games", "physics", "--ntasks=2 --gpus=1", -2.5, 1.25),
    ("backup", "biology", "--ntasks=1", -1.0, -0.5),
    ("backup", "physics", "--ntasks=1 --gpus=2", 0.5, 3.0),
)
"""User, account, what the job asks for, and from when to when it is said to have run, in hours after MIDNIGHT."""


class Controller:
    """kubectl for one pod of the sandbox."""

    def __init__(self, sandbox: AccountingSandbox) -> None:
        self.sandbox = sandbox

    def run(
        self, *arguments: str, stdin: str | None = None, check: bool = True, **_bounds: float
    ) -> subprocess.CompletedProcess[str]:
        """`kubectl exec -n NAMESPACE POD -c CONTAINER -- COMMAND`; no pod has the label of the active one of two."""
        assert (stdin, check) == (None, False)
        if arguments[:2] == ("get", "pod"):
            return subprocess.CompletedProcess(arguments, 0, stdout="", stderr="")
        verb, _, _, pod, _, _, _, *command = arguments
        assert verb == "exec"
        return self.sandbox.pods[pod].run(command)


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> AccountingSandbox:
    """Two accounts, two users, and one worker that says it has two GPUs and serves figures of jobs."""
    config = accounting_config(
        slurm_version, GPUS, **{"gres.conf": "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"}
    )
    node = "CPUs=2 RealMemory=1000 Feature=default Gres=gpu:2"
    sandbox = slurm_cluster(slurm_version, config=config, workers=0, node_conf=node, kind=AccountingSandbox)
    sandbox.start_worker_on("default-0", env={"JOB_METRICS": "yes"})
    sandbox.wait_for_nodes(1)
    for user, account in PEOPLE.items():
        for command in (f"add account {account}", f"add user {user} account=physics,biology"):
            sacctmgr(sandbox, command)
        done = sacctmgr(sandbox, f"modify user {user} set defaultaccount={account}")
        assert done.returncode == 0, done.stdout + done.stderr
    return sandbox


@pytest.fixture(scope="module")
def past(cluster: AccountingSandbox) -> AccountingSandbox:
    """Three finished jobs, of which the database says that they ran yesterday and the day before."""
    jobs = [submit(cluster, user, account, asks, "true") for user, account, asks, _, _ in RUNS]
    ended = f"--jobs={','.join(jobs)} --noheader --allocations --parsable2 --format=State"

    def recorded() -> bool:
        return cluster.run(f"sacct {ended}").stdout.split() == ["COMPLETED"] * len(jobs)

    wait_until(recorded, lambda: f"{cluster.run(f'sacct {ended}').stdout}{cluster.logs()}")
    pod = cluster.pods["slurmdbd-0"]
    kill(pod, "slurmdbd")
    long_ago = int((MIDNIGHT - timedelta(days=2)).timestamp())
    sql = [
        f"UPDATE sandbox_event_table SET time_start={long_ago} WHERE node_name='' ORDER BY time_start LIMIT 1",
        "DELETE FROM sandbox_last_ran_table",
        f"INSERT INTO sandbox_last_ran_table VALUES ({long_ago}, {long_ago}, {long_ago})",
    ]
    for job, (_, _, _, start, end) in zip(jobs, RUNS, strict=True):
        begin, until = at(start), at(end)
        sql.append(
            f"UPDATE sandbox_job_table SET time_submit={begin}, time_eligible={begin}, time_start={begin}, "
            f"time_end={until} WHERE id_job={job}"
        )
    database(cluster, "; ".join(sql))
    pod.start_program("slurmdbd")
    wait_for_accounting(cluster)
    query = "SELECT MIN(daily_rollup) FROM sandbox_last_ran_table"
    wait_until(
        lambda: int(database(cluster, query).split()[-1]) >= int(TODAY.timestamp()),
        lambda: f"slurmdbd has not summed up yesterday: {cluster.logs()}",
    )
    return cluster


def at(hour: float) -> int:
    """Seconds since 1970 at an hour after MIDNIGHT."""
    return int((MIDNIGHT + timedelta(hours=hour)).timestamp())


def submit(sandbox: AccountingSandbox, user: str, account: str, asks: str, command: str) -> str:
    """Submit a job of a user; returns its id."""
    batch = f"sbatch --parsable --uid={user} --account={account} {asks} --output=/dev/null --wrap '{command}'"
    done = sandbox.run(f"cd /tmp; {batch}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def database(sandbox: AccountingSandbox, sql: str) -> str:
    """What MariaDB answers."""
    command = ["mariadb", "--defaults-file=/run/mysqld/probe.cnf", "slurm_acct_db", "--execute", sql]
    done = sandbox.pods["database"].run(command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def report(sandbox: AccountingSandbox, start: datetime, end: datetime) -> Summary:
    """The command's own way from slurmdbd to hours."""
    kubectl: Any = Controller(sandbox)
    return summarize(read_runs(kubectl, "slurm", start, end), start=start, end=end, now=end, by=("account", "user"))


def seconds(usage: Summary) -> dict[tuple[str, ...], int]:
    """Seconds by account, user and resource."""
    found: dict[tuple[str, ...], int] = {}
    for row in usage.rows:
        found[*row.group, "cpu"] = round(row.cpu_asked * 3600)
        found[*row.group, "gres/gpu"] = round(row.gpu_asked * 3600)
    return {key: value for key, value in found.items() if value}


def sreport(sandbox: AccountingSandbox, start: datetime, end: datetime) -> dict[tuple[str, ...], int]:
    """What Slurm itself reports: seconds by account, user and resource."""
    command = (
        f"sreport --parsable2 --noheader -t Seconds --tres=cpu,gres/gpu cluster AccountUtilizationByUser "
        f"Start={start:%Y-%m-%dT%H:%M:%S} End={end:%Y-%m-%dT%H:%M:%S} format=Account,Login,TresName,Used"
    )
    done = sandbox.run(command)
    assert done.returncode == 0, done.stderr
    lines = [line.split("|") for line in done.stdout.splitlines()]
    return {(account, login, tres): int(used) for account, login, tres, used in lines if login and int(used)}


def test_the_hours_are_those_of_sreport(past: AccountingSandbox) -> None:
    start, end = MIDNIGHT - timedelta(days=1), TODAY
    expected = {
        ("physics", "games", "cpu"): 27000,
        ("physics", "games", "gres/gpu"): 13500,
        ("biology", "backup", "cpu"): 1800,
        ("physics", "backup", "cpu"): 9000,
        ("physics", "backup", "gres/gpu"): 18000,
    }
    assert sreport(past, start, end) == expected
    assert seconds(report(past, start, end)) == expected


def runs_of(sandbox: AccountingSandbox, job: str) -> list[Run]:
    """Runs of a job that was submitted a moment ago."""
    kubectl: Any = Controller(sandbox)
    now = datetime.now(UTC)
    return [
        run
        for run in read_runs(kubectl, "slurm", now - timedelta(minutes=10), now)
        if run.job == job and run.seconds and run.cpus
    ]


def test_every_run_of_a_requeued_job_counts(past: AccountingSandbox) -> None:
    job = submit(past, "games", "physics", "--ntasks=1 --requeue", "sleep 600")
    wait_until(lambda: len(runs_of(past, job)) == 1, lambda: f"no run of job {job}: {past.logs()}")
    past.run(f"scontrol requeuehold {job}")
    wait_until(lambda: "PD" in past.run(f"squeue --noheader --format=%t --jobs={job}").stdout, past.logs)
    past.run(f"scontrol release {job}")
    past.wait_for_start(job)
    wait_until(lambda: len(runs_of(past, job)) == 2, lambda: f"job {job} did not run again: {past.logs()}")
    past.run(f"scancel {job}")


def recorded(sandbox: AccountingSandbox, job: str) -> list[Run]:
    """The records of a job, or of all tasks of an array, with their steps."""
    kubectl: Any = Controller(sandbox)
    return ask_sacct(kubectl, "slurm", [*sacct(FIELDS), "--allusers", f"--jobs={job}"])


def ended(sandbox: AccountingSandbox, job: str) -> list[Run]:
    """The same once it has ended and all of it is in the database."""
    left = f"squeue --noheader --jobs={job}"
    wait_until(lambda: not sandbox.run(left).stdout, lambda: f"{sandbox.run(left).stdout}{sandbox.logs()}")

    def whole() -> bool:
        runs = recorded(sandbox, job)
        return bool(runs) and all(one.end is not None and one.steps for one in runs)

    wait_until(whole, lambda: f"the records of job {job}: {recorded(sandbox, job)}")
    return recorded(sandbox, job)


def work(seconds: int) -> str:
    """Holds 128 MiB, and keeps one CPU busy until it has had so many seconds of it, however many others want it."""
    program = f"import time; held = bytearray(128 * 2**20)\nwhile time.process_time() < {seconds}: pass"
    return f'python3 -c "{program}"'


def test_a_job_that_uses_one_of_two_cpus_is_half_efficient_and_its_memory_is_what_it_holds(
    past: AccountingSandbox,
) -> None:
    asks = "--ntasks=2 --mem=512M --gpus=1 --acctg-freq=task=1"
    (job,) = ended(past, submit(past, "games", "physics", asks, work(3)))
    assert (job.user, job.account, job.state, job.nodes) == ("games", "physics", "COMPLETED", 1)
    assert (job.cpus, job.gpus, job.memory) == (2, 1, 512 * 2**20)
    assert job.cpu_seconds is not None
    assert 3 <= job.cpu_seconds < 6, "with the start of Python, and not twice"
    assert job.memory_used is not None
    assert 128 <= job.memory_used / 2**20 < 170
    now = datetime.now(UTC)
    total = summarize([job], start=now - timedelta(hours=1), end=now, now=now, by=("account",)).total
    percent = 100 * total.cpu_used / total.cpu_measured
    assert percent == pytest.approx(100 * job.cpu_seconds / (2 * job.seconds))
    assert percent < 60  # one CPU is never more than half of two, but seconds are whole
    said = seff(past, job.job)
    assert (said["Job ID"], said["Nodes"], said["Cores per node"]) == (job.job, "1", "2")
    assert (said["User/Group"].partition("/")[0], said["State"]) == ("games", "COMPLETED (exit code 0)")
    assert said["CPU Utilized"] in {f"00:00:0{seconds}" for seconds in range(3, 7)}
    assert re.fullmatch(r"1[2-9]\d\.\d\d MB", said["Memory Utilized"])
    assert re.fullmatch(r"[23]\d\.\d\d% of 512\.00 MB \(512\.00 MB/node\)", said["Memory Efficiency"])


def seff(sandbox: AccountingSandbox, job: str) -> dict[str, str]:
    """What it prints of an ended job."""
    shutil.copy(ROOT / "images/jail/seff.py", sandbox.controller.root / "tmp/seff.py")
    program = 'import sys; sys.path[:0] = ["/tmp", "/usr/lib/slurmstack"]; import seff; sys.exit(seff.main())'
    done = sandbox.run(["python3", "-c", program, job])
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


GET = "exec 3<>/dev/tcp/default-0/9306 && printf 'GET {path} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&3 && cat <&3"
RIGHTS = "for p in /proc/[0-9]*; do grep -q ^Uid:.65534 $p/status && grep -E '^(Uid|CapPrm|CapEff):' $p/status; done"


def test_figures_of_jobs_are_served_and_nothing_else_by_nobody_without_rights(cluster: AccountingSandbox) -> None:
    """The figures themselves take cgroups of version 2: tests/machine/test_usage.py."""

    def get(path: str) -> str:
        return cluster.run(GET.format(path=path)).stdout.partition("\n")[0].strip()

    wait_until(lambda: get("/metrics").endswith(" 200 OK"), cluster.logs)
    assert " 404 " in get("/etc/passwd")
    lines = [line.split() for line in cluster.run(RIGHTS, pod="default-0").stdout.splitlines()]
    assert {line[0]: set(line[1:]) for line in lines} == {
        "Uid:": {"65534"}, "CapPrm:": {"0" * 16}, "CapEff:": {"0" * 16},
    }  # fmt: skip


def test_how_a_job_has_ended_is_seen_without_its_record(cluster: AccountingSandbox) -> None:
    """While slurmctld still has it: that is all there is without accounting."""
    job, kubectl = submit(cluster, "games", "physics", "--ntasks=1", "exit 3"), Controller(cluster)

    def seen() -> list[tuple[str, str]]:
        known = read_job(kubectl, "slurm", job, accounting=False)  # type: ignore[arg-type]
        return [(one.state, one.reason) for one in known.present]

    wait_until(lambda: seen() == [("FAILED", "NonZeroExitCode")], lambda: f"{seen()}{cluster.logs()}")
