"""The exporter beside real daemons: it says what Slurm's commands say, and what slurmctld of 26.05 says itself."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from components.exporter import SLURM_UID
from tests.figures import SLURMS
from tests.nodes import SHOW, in_state
from tests.slurm.accounting import kill
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

OWN = "http://127.0.0.1:9341/metrics"
OF_SLURMCTLD = ("jobs", "nodes", "partitions", "jobs-users-accts", "scheduler")
PEOPLE = {"games": "physics", "backup": "biology"}
"""Users who are in every Debian system, and their accounts."""

ENV = {
    "SLURM_CONF": "/config/slurm/slurm.conf",
    "AGENT_URL": "http://controller-0:8817",
    "BY_PERSON": "yes",
    "INTERVAL_SECONDS": "1",
}

SERIES = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")

Metrics = dict[tuple[str, str], float]
"""Name and labels -> value."""


def config_of(version: str, extra: str = "") -> dict[str, str]:
    gpus = "GresTypes=gpu\nNodeSet=none Feature=none\nPartitionName=empty Nodes=none\n"
    metrics = "MetricsType=metrics/openmetrics\n" if version == "26.05" else ""
    return minimal_config(
        version, gpus + metrics + extra, **{"gres.conf": "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"}
    )


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """Two workers that say that they have two GPUs, and the exporter."""
    node = "CPUs=2 RealMemory=1000 Feature=default Gres=gpu:2"
    found = slurm_cluster(slurm_version, config=config_of(slurm_version), workers=2, node_conf=node)
    found.add_pod("exporter", "exporter", {found.config_directory: "/config/slurm"})
    return found


@pytest.fixture
def exporter(cluster: SlurmSandbox) -> Iterator[SlurmSandbox]:
    """The cluster with an exporter that any user could be."""
    cluster.pods["exporter"].start_program("exporter", ENV)
    yield cluster
    kill(cluster.pods["exporter"], "exporter")
    cluster.run("scancel --state=PENDING; scancel --state=RUNNING; scontrol update nodename=default-1 state=resume")
    wait_until(lambda: not cluster.run("squeue --noheader").stdout.strip(), "no job to be left")


def scrape(sandbox: SlurmSandbox, url: str = OWN) -> str:
    """The text at an address, read in the exporter's pod."""
    program = f"import urllib.request; print(urllib.request.urlopen('{url}', timeout=10).read().decode(), end='')"
    done = sandbox.run(["python3", "-c", program], pod="exporter")
    return done.stdout


def metrics(text: str) -> Metrics:
    return {(match[1], match[2] or ""): float(match[3]) for match in map(SERIES.fullmatch, text.splitlines()) if match}


def submit(sandbox: SlurmSandbox, user: str, asks: str) -> None:
    batch = f"sbatch --uid={user} --account={PEOPLE[user]} {asks} --output=/dev/null --wrap 'sleep 600'"
    done = sandbox.run(f"cd /tmp; {batch}")
    assert done.returncode == 0, done.stderr


def fill(sandbox: SlurmSandbox) -> None:
    """Jobs that run, wait and are held, and a drained node."""
    submit(sandbox, "games", "-n1 --gpus=1 --nodelist=default-0")
    submit(sandbox, "games", "-n1 --mem=64 --nodelist=default-1")
    running = "squeue --noheader --states=running --format=%i"
    wait_until(lambda: len(sandbox.run(running).stdout.split()) == 2, "two jobs to run")
    submit(sandbox, "backup", "-N2 -n4")
    submit(sandbox, "backup", "--array=1-7:2,20 --hold")
    sandbox.run("scontrol update nodename=default-1 state=drain reason='health/dns [node]: no answer'")


def wait_for(sandbox: SlurmSandbox, wanted: Metrics) -> Metrics:
    """Until the exporter says so."""
    last: Metrics = {}

    def says_so() -> bool:
        nonlocal last
        last = metrics(scrape(sandbox))
        return all(last.get(key) == value for key, value in wanted.items())

    def why() -> str:
        return f"{ {key: (last.get(key), value) for key, value in wanted.items() if last.get(key) != value} }"

    # A command whose slurmctld is down tries for some ten seconds.
    wait_until(says_so, lambda: f"metrics (has, wanted): {why()}\n{sandbox.pods['exporter'].log('exporter')}")
    return last


def test_the_figures_are_what_slurms_commands_say_and_what_slurmctld_of_26_05_says_itself(
    exporter: SlurmSandbox, slurm_version: str
) -> None:
    fill(exporter)
    shown = exporter.run("squeue --noheader --array --format=%T").stdout.split()
    assert (shown.count("PENDING"), shown.count("RUNNING"), in_state(exporter.run(SHOW).stdout)) == (6, 2, [])
    wait_for(
        exporter,
        {
            ("slurm_jobs_pending", ""): 6,
            ("slurm_jobs_hold", ""): 5,
            ("slurm_jobs_running", ""): 2,
            ("slurm_account_jobs_running", 'account="physics"'): 2,
            ("slurm_partition_jobs_pending", 'partition="main"'): 6,
            ("slurm_partition_jobs_pending", 'partition="empty"'): 0,
            ("slurm_node_gpus_alloc", 'node="default-0"'): 1,
            ("slurm_node_memory_alloc_bytes", 'node="default-1"'): 64,
            ("slurm_nodes_idle", ""): 0,
            ("slurm_nodes_mixed", ""): 2,
            ("slurm_nodes_draining", ""): 1,
            ("slurmstack_slurmctld_up", ""): 1,
            ("slurmstack_node_drained", 'node="default-1",reason_kind="health",check="dns"'): 1,
        },
    )
    ours = scrape(exporter)
    own = {key: value for key, value in metrics(ours).items() if key[0].startswith("slurm_")}
    assert {name for name, _ in own} == set(SLURMS)
    if slurm_version == "24.11":
        return
    *texts, of_scheduler = [scrape(exporter, f"http://controller-0:6817/metrics/{path}") for path in OF_SLURMCTLD]
    described = {line for line in ours.splitlines() if re.match(r"# TYPE slurm_", line)}
    assert described <= {line for text in [*texts, of_scheduler] for line in text.splitlines()}
    changing = {key: own.pop(key) for key in metrics(of_scheduler) if key[0] in SLURMS}
    assert len(changing) == 7
    theirs = {key: value for text in texts for key, value in metrics(text).items() if key[0] in SLURMS}
    # slurmctld counts what slurmdbd tracks, and none is here.
    of_gpus = {("slurm_node_gpus", f'node="default-{number}"') for number in range(2)}
    assert [own.pop(key) for key in of_gpus] == [2, 2]
    assert [theirs.pop(key) for key in of_gpus] == [0, 0]
    assert own == theirs


@pytest.mark.parametrize("account", ['a"b', "x" * 400])
def test_whatever_users_call_their_accounts_figures_can_be_read(
    exporter: SlurmSandbox, promtool: str, account: str
) -> None:
    done = exporter.run(
        ["sbatch", "--uid=games", "--hold", f"--account={account}", "--output=/dev/null", "--wrap=true"]
    )
    assert done.returncode == 0, done.stderr
    wait_for(exporter, {("slurm_jobs_hold", ""): 1})

    def is_read(text: str) -> bool:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        return done.returncode != 1  # 3: it does not like the names

    assert is_read(scrape(exporter))
    exporter.run("scancel --user=games")


def test_without_slurmctld_it_is_down(exporter: SlurmSandbox) -> None:
    up = ("slurmstack_slurmctld_up", "")
    wait_for(exporter, {up: 1})
    kill(exporter.controller, "slurmctld")
    try:
        found = wait_for(
            exporter, {("slurmstack_exporter_up", f'source="{name}"'): 0 for name in ("scheduler", "jobs")}
        )
        assert found[up] == 0
        assert [name for name, _ in found if name.startswith(("slurm_", "slurmstack_job"))] == []
        assert found["slurmstack_exporter_up", 'source="configuration"'] == 1
    finally:
        exporter.controller.start_program("slurmctld")
    wait_for(exporter, {up: 1, ("slurmstack_exporter_up", 'source="jobs"'): 1})


def test_a_refused_configuration_is_told_and_private_data_are_seen_by_slurms_user_alone(
    exporter: SlurmSandbox, slurm_version: str
) -> None:
    submit(exporter, "games", "-n1")
    wait_for(exporter, {("slurmstack_configuration_refused", ""): 0, ("slurm_jobs_running", ""): 1})
    exporter.set_config(config_of(slurm_version, "SchedulerType=sched/nothing\n"))
    found = wait_for(exporter, {("slurmstack_configuration_refused", ""): 1})
    assert found["slurmstack_volume_free_bytes", 'volume="state"'] > 0
    exporter.set_config(config_of(slurm_version, "PrivateData=jobs,nodes\n"))
    wait_for(exporter, {("slurmstack_configuration_refused", ""): 0, ("slurm_jobs_running", ""): 0})
    if slurm_version == "26.05":
        assert scrape(exporter, "http://controller-0:6817/metrics/jobs") == ""
    kill(exporter.pods["exporter"], "exporter")
    exporter.pods["exporter"].start_program("exporter", {**ENV, "RUN_AS": str(SLURM_UID), "BY_PERSON": "no"})
    found = wait_for(exporter, {("slurm_jobs_running", ""): 1, ("slurm_nodes_mixed", ""): 1})
    assert [name for name, labels in found if "account" in labels or "username" in labels] == []
