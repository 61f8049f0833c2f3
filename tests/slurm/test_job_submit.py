"""Rules for jobs at their submission, as a user meets them: the script that we render, in real slurmctlds."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from config import load_config
from slurm.conf import render
from tests import stacks
from tests.slurm.cluster import ClusterFactory
from tests.slurm.configuring import activate, change
from tests.slurm.gpu_driver import bring_driver
from tests.slurm.pod import wait_until
from tests.slurm.sandbox import SlurmSandbox

GPU_RULE = {"gpus_only_in_gpu_partitions": True}
WAYS = [
    "--gpus=1", "--gpus=h100:1", "-G 1", "--gres=gpu:1", "--gres=gpu", "--gres=gpu:h100:1", "--gpus-per-node=1",
    "--gpus-per-task=1 -n1", "--tres-per-task=gres/gpu:1 -n1", "--tres-per-task=cpu=1,gres/gpu=1 -n1",
    "--gpus-per-socket=1 --sockets-per-node=1", "--gpus=1 --array=1-3", "--exclusive --gpus=1",
]  # fmt: skip
"""Ways to ask for GPUs."""
NONE = ["", "--gpus=0", "--gres=gpu:0", "--gres=none", "--array=1-3", "--exclusive=user"]
"""Ways to ask for none."""


def files(version: str, **job_submit: Any) -> dict[str, str]:
    """A pool with GPUs and one without; partitions over each, and over both."""
    sections = stacks.existing() | {
        "slurm": {"version": version},
        "job_submit": job_submit,
        "accounts": {"physics": {}},
    }
    sections["partitions"] = {
        "cpu": {"pools": ["cpu"], "default": True},
        "gpu": {"pools": ["gpu"]},
        "mixed": {"pools": ["cpu", "gpu"]},
    }
    rendered = render(load_config(sections))
    # The rules need no database, and slurmctld would wait for one.
    lines = rendered["slurm.conf"].splitlines()
    kept = [line for line in lines if not line.startswith(("AccountingStorage", "PriorityWeight"))]
    return {**rendered, "slurm.conf": "\n".join(kept) + "\n"}


@pytest.fixture(scope="module")
def cluster(slurm_cluster: ClusterFactory, slurm_version: str) -> SlurmSandbox:
    """One node of each pool."""
    sandbox = slurm_cluster(slurm_version, config=files(slurm_version), workers=0)
    sandbox.start_worker_on("cpu-0", env={"NODE_CONF": "CPUs=2 RealMemory=2000 Feature=cpu"})
    gpus = "CPUs=2 RealMemory=2000 Feature=gpu Gres=gpu:h100:2"
    sandbox.start_worker_on("gpu-0", env={"NODE_CONF": gpus}, before=bring_driver)
    sandbox.wait_for_nodes(2)
    return sandbox


@pytest.fixture
def gpu_rule(cluster: SlurmSandbox) -> SlurmSandbox:
    """The cluster with the rule about GPUs in force."""
    activate(cluster, files(cluster.version, **GPU_RULE))
    return cluster


def as_user(cluster: SlurmSandbox, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as somebody who is not an administrator."""
    user = "setpriv --reuid=nobody --regid=nogroup --clear-groups"
    return cluster.run(f"cd /tmp && {user} {command}", pod="cpu-0")


def submit(cluster: SlurmSandbox, options: str) -> str:
    """Submit a job that stays held; its id."""
    done = as_user(cluster, f"sbatch --parsable --hold {options} --wrap true")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def refusal(cluster: SlurmSandbox, options: str) -> str:
    """The first line that a refused user sees."""
    done = as_user(cluster, f"sbatch --parsable --hold {options} --wrap true")
    assert (done.returncode, done.stdout) == (1, ""), done.stdout + done.stderr
    return done.stderr.splitlines()[0]


def update(cluster: SlurmSandbox, job: str, change: str) -> str:
    """What `scontrol update` says, once slurmctld has time for it."""
    said = ""

    def decided() -> bool:
        nonlocal said
        done = as_user(cluster, f"scontrol update jobid={job} {change}")
        said = done.stdout + done.stderr
        return "temporarily unavailable" not in said

    wait_until(decided, f"an answer to {change}")
    return said


@pytest.mark.in_gate
def test_a_job_with_gpus_is_refused_where_there_are_none(gpu_rule: SlurmSandbox) -> None:
    expected = "partition cpu has no GPUs: use --partition with gpu or mixed, or do not ask for GPUs"
    for ask in WAYS:
        assert refusal(gpu_rule, f"--partition=cpu {ask}") == f"sbatch: error: {expected}", ask
    assert expected in refusal(gpu_rule, "--gpus=1"), "cpu is the default partition"
    assert expected in refusal(gpu_rule, "--partition=gpu,cpu --gpus=1"), "each of several partitions must be fit"


@pytest.mark.in_gate
def test_a_job_with_gpus_is_accepted_where_there_are_some(gpu_rule: SlurmSandbox) -> None:
    for ask in WAYS:
        submit(gpu_rule, f"--partition=gpu {ask}")
    for partition in ("mixed", "gpu,mixed"):
        submit(gpu_rule, f"--partition={partition} --gpus=1")


def test_a_job_without_gpus_is_refused_where_every_node_has_some(gpu_rule: SlurmSandbox) -> None:
    expected = (
        "partition gpu is for jobs with GPUs: ask for some, for example --gpus=1, or use --partition with cpu or mixed"
    )
    for ask in NONE:
        assert refusal(gpu_rule, f"--partition=gpu {ask}") == f"sbatch: error: {expected}", ask
    assert expected in refusal(gpu_rule, "--partition=cpu,gpu")


def test_a_job_with_whole_nodes_has_their_gpus_and_need_not_ask(gpu_rule: SlurmSandbox) -> None:
    script = "'echo $CUDA_VISIBLE_DEVICES >/tmp/devices'"
    done = as_user(gpu_rule, f"sbatch --wait --partition=gpu --exclusive --mem=100 --output=/dev/null --wrap {script}")
    assert done.returncode == 0, done.stderr + gpu_rule.logs()
    assert gpu_rule.run("cat /tmp/devices", pod="gpu-0").stdout == "0,1\n"


@pytest.mark.in_gate
def test_a_queued_job_cannot_be_changed_into_one_that_would_be_refused(gpu_rule: SlurmSandbox) -> None:
    with_gpu = submit(gpu_rule, "--partition=gpu --gpus-per-node=1")
    without = submit(gpu_rule, "--partition=cpu")
    assert "partition cpu has no GPUs" in update(gpu_rule, with_gpu, "partition=cpu")
    assert "partition gpu is for jobs with GPUs" in update(gpu_rule, with_gpu, "gres=gpu:0")
    assert "partition gpu is for jobs with GPUs" in update(gpu_rule, without, "partition=gpu")
    assert "partition cpu has no GPUs" in update(gpu_rule, without, "gres=gpu:1")
    shown = gpu_rule.run(f"squeue --noheader --format='%i %P %b' --jobs={with_gpu},{without} --sort=i").stdout
    assert [line.split() for line in shown.splitlines()] == [
        [with_gpu, "gpu", "gres/gpu:1"],
        [without, "cpu", "N/A"],
    ]


def test_a_job_that_names_no_account_is_refused(cluster: SlurmSandbox) -> None:
    activate(cluster, files(cluster.version, require_account=True))
    expected = "sbatch: error: say what the job is booked on: --account=NAME"
    assert refusal(cluster, "").startswith(expected)
    assert refusal(cluster, "--account=''").startswith(expected)
    job = submit(cluster, "--account=physics")
    assert as_user(cluster, "env SBATCH_ACCOUNT=physics sbatch --hold --wrap true").returncode == 0
    assert "a job must stay booked on an account" in update(cluster, job, "account=''")
    assert update(cluster, job, "nice=5") == ""
    assert "Account=physics" in cluster.run(f"scontrol show job {job}").stdout


@pytest.mark.in_gate
def test_a_script_that_does_not_load_is_rejected_and_the_rules_before_hold(gpu_rule: SlurmSandbox) -> None:
    good = files(gpu_rule.version, **GPU_RULE)
    pid = gpu_rule.run("pidof slurmctld").stdout
    for script, message in (
        ("function slurm_job_submit(\n", "near '<eof>'"),
        ("return slurm.SUCCESS\n", "missing required function slurm_job_submit"),
        ("local x = nil\nx.y = 1\nreturn slurm.SUCCESS\n", "attempt to index local 'x'"),
    ):
        bad = {**good, "job_submit.lua": script}
        assert message in change(gpu_rule, bad)["rejected"]["message"]
        assert "partition cpu has no GPUs" in refusal(gpu_rule, "--partition=cpu --gpus=1")
    assert gpu_rule.run("pidof slurmctld").stdout == pid
