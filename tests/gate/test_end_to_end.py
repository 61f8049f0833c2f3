"""A cluster's life on this machine, from `make up` to `make down`, as its administrator and one user have it.

One story: each test goes on where the one before it has ended, so a run stops at its first failure (`pytest -x`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import pytest

from local import cluster as local_cluster
from slurm.local_cluster import local_directory, login_key
from tests.e2e.conftest import ENGINES, keep_state
from tests.e2e.harness import SlurmOnKubernetes, nothing_is_left, only_data_is_left, slurmstack, wait_until
from tests.e2e.newcomer import make, traces
from tests.first_steps import AS_USER, typed_by_users
from tests.stacks import dev, with_change

SIZE = "worker_nodes.default.size"
NODES = ["default-0", "default-1", "default-2"]

UNTIL_TOLD = "until test -e ~/$SLURM_JOB_ID; do sleep 0.2; done; echo ended well"
"""A job that ends when `tell_to_end` says so."""


@pytest.fixture(scope="module", autouse=True)
def before() -> Iterator[dict[str, set[str]]]:
    """What was on the machine before the first cluster. Whatever fails, no cluster is left behind."""
    if os.geteuid() != 0:
        pytest.fail("the local cluster needs root")
    if local_cluster.status().exists:
        pytest.fail("a local cluster is there already: run `make down` first, which deletes its data")
    yield traces()
    if local_cluster.status().exists:
        make("down")


@pytest.fixture(scope="module")
def slurm(before: dict[str, set[str]], tmp_path_factory: pytest.TempPathFactory) -> SlurmOnKubernetes:
    """The cluster of `make up`: changes are made in a copy of its stack file, by whatever engine has made it."""
    directory = tmp_path_factory.mktemp("dev")
    keep_state(ENGINES[-1], directory)
    sections = {**dev(), "cluster": {"namespace": "slurm"}}
    return SlurmOnKubernetes(engine=ENGINES[-1], directory=directory, sections=sections, stack="dev", key=login_key())


@pytest.fixture(scope="module")
def jobs() -> dict[str, str]:
    """Ids of the jobs that outlive the test that submitted them."""
    return {}


def tell_to_end(slurm: SlurmOnKubernetes, job: str) -> None:
    """Have a job end, and see that it does so by itself, with all of its output."""
    slurm.ssh(f"touch ~/{job}")
    slurm.await_job(job, "COMPLETED")
    assert slurm.ssh(f"cat job-{job}.out") == "ended well\n"


def test_make_up_ends_with_srun_on_two_nodes_and_says_how_to_log_in(slurm: SlurmOnKubernetes) -> None:
    printed = make("up")
    assert "alice@login:~$ srun -N2 hostname" in printed
    assert sorted(re.findall(r"^default-\d$", printed, re.MULTILINE)) == NODES[:2]
    assert "slurmstack login alice" in printed


def test_alice_logs_in_and_runs_srun_on_two_nodes_in_the_jail(slurm: SlurmOnKubernetes) -> None:
    slurm.ssh("echo written at login >note")
    shown = slurm.ssh("srun -N2 sh -c 'echo $(hostname) $(id -un) $(pwd) $(ls /.slurmstack/populated) $(cat note)'")
    where = "alice /home/alice /.slurmstack/populated written at login"
    assert sorted(shown.splitlines()) == [f"{name} {where}" for name in NODES[:2]]


def test_what_the_first_pages_have_users_type_works(slurm: SlurmOnKubernetes) -> None:
    for block in (block for page in AS_USER for block in typed_by_users(page)):
        slurm.ssh(f"set -e\n{block}")
    slurm.ssh("scancel --me")  # a page lets one job sleep for a minute


def test_size_three_gives_a_third_node_and_srun_on_three(slurm: SlurmOnKubernetes) -> None:
    slurm.sections = with_change(slurm.sections, "partitions.old", {"pools": ["default"]})  # which leaves later
    slurm.change(SIZE, 3)
    slurm.await_idle(*NODES)
    assert sorted(slurm.ssh("srun -N3 hostname").split()) == NODES


def test_a_setting_becomes_active_under_a_running_job_and_no_pod_is_another(
    slurm: SlurmOnKubernetes, jobs: dict[str, str]
) -> None:
    jobs["old"] = slurm.submit(UNTIL_TOLD, "-N2", "--partition=old", "--output=job-%j.out")
    slurm.await_job(jobs["old"], "RUNNING")
    pods = slurm.pod_uids()
    slurm.change("slurm.settings.MinJobAge", 301)
    assert slurm.setting("MinJobAge") == "301 sec"
    assert slurm.job_state(jobs["old"]) == "RUNNING"
    assert slurm.pod_uids() == pods


def test_a_bad_setting_is_refused_in_slurm_s_words_and_the_old_ones_stay(
    slurm: SlurmOnKubernetes, jobs: dict[str, str]
) -> None:
    good, pods = slurm.sections, slurm.pod_uids()
    done = slurm.change("slurm.settings.KillWait", "soon", check=False)
    slurm.sections = good
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert 'KillWait value "soon" is not a valid number' in said
    assert "Traceback" not in said
    assert slurm.setting("MinJobAge") == "301 sec"
    assert slurm.job_state(jobs["old"]) == "RUNNING"
    assert slurm.ssh("srun hostname").strip() in NODES
    assert slurm.pod_uids() == pods


def test_a_partition_leaves_while_a_job_runs_in_it_and_takes_no_new_one(
    slurm: SlurmOnKubernetes, jobs: dict[str, str]
) -> None:
    slurm.sections = {**slurm.sections, "partitions": dev()["partitions"]}
    slurm.up()
    assert slurm.job_state(jobs["old"]) == "RUNNING"
    assert "Required partition not available" in slurm.refusal("--partition=old")


def test_that_job_is_completed_and_the_partition_gone(slurm: SlurmOnKubernetes, jobs: dict[str, str]) -> None:
    tell_to_end(slurm, jobs["old"])
    partitions = "scontrol show partitions | grep -o ^PartitionName=.*"
    wait_until(lambda: slurm.slurm(partitions).split() == ["PartitionName=main"], "only the partition main is there")


def test_size_one_lets_a_job_on_all_nodes_complete_and_removes_two_node_records(slurm: SlurmOnKubernetes) -> None:
    job = slurm.submit(UNTIL_TOLD, "-N3", "--output=job-%j.out")
    slurm.await_job(job, "RUNNING")
    slurm.change(SIZE, 1)  # returns while the job runs
    wait_until(
        lambda: {name for name, states in slurm.nodes().items() if "DRAIN" in states} == {*NODES[1:]},
        lambda: f"two nodes drain: {slurm.nodes()}",
    )
    assert slurm.job_state(job) == "RUNNING"
    tell_to_end(slurm, job)
    slurm.await_idle(NODES[0])


def test_destroy_keeps_the_data_and_with_delete_data_leaves_nothing(slurm: SlurmOnKubernetes) -> None:
    destroy = ("destroy", "--yes", "--config", str(slurm.file), "--engine", slurm.engine)
    files = local_directory() / "volumes" / slurm.namespace
    told = slurmstack(*destroy).stdout
    if slurm.engine == "kubectl":  # Pulumi's own way keeps nothing in Kubernetes
        assert "`slurmstack destroy --delete-data` deletes it for good" in told
        only_data_is_left(slurm)
        assert (files / "jail/home/alice/note").read_text(encoding="utf-8") == "written at login\n"
        slurmstack(*destroy, "--delete-data")
        assert not files.exists()
    nothing_is_left(slurm)


def test_make_down_leaves_nothing_on_the_machine(before: dict[str, set[str]]) -> None:
    seen = {name for name, found in traces().items() if found - before[name]}
    assert seen >= {"links", "routes", "firewall", "mounts", "cgroups", "processes", "directories"}
    make("down")
    wait_until(lambda: traces() == before, lambda: f"as before: {traces()} instead of {before}")
