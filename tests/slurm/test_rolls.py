"""New pods for the nodes of a fixed pool with real daemons: as they fall idle, one at a time, and under jobs."""

from __future__ import annotations

import re

import pytest

from images.common.slurm_node import ROLLS
from tests.slurm.cluster import ClusterFactory
from tests.slurm.minimal import minimal_config
from tests.slurm.pod import wait_until
from tests.slurm.rolling import BAD, RollingSandbox

ALL_IDLE = {f"cpu-{number}": "IDLE+DYNAMIC_NORM" for number in range(4)}


@pytest.fixture(scope="module")
def rolling(slurm_cluster: ClusterFactory, slurm_version: str) -> RollingSandbox:
    config = minimal_config(slurm_version, "NodeSet=cpu Feature=cpu\nPartitionName=cpu Nodes=cpu")
    sandbox = slurm_cluster(slurm_version, kind=RollingSandbox, config=config)
    await_states(sandbox, ALL_IDLE)
    return sandbox


def await_states(rolling: RollingSandbox, wanted: dict[str, str]) -> None:
    wait_until(lambda: rolling.states() == wanted, lambda: f"{wanted}: {rolling.states()}\n{rolling.said()}")


def await_revisions(rolling: RollingSandbox, *wanted: str) -> None:
    wait_until(
        lambda: rolling.revisions() == sorted(wanted),
        lambda: f"pods of {wanted}: {rolling.revisions()}, {rolling.states()}\n{rolling.said()}",
    )


def submit(rolling: RollingSandbox, node: str, minutes: int = 10) -> str:
    """A job that runs until `end`."""
    options = ["--parsable", "--partition=cpu", f"--nodelist={node}", "--output=/dev/null", f"--time={minutes}"]
    done = rolling.run(["sbatch", *options, "--wrap", "trap 'exit 0' USR1; sleep 1000 & wait"])
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    wait_until(lambda: state(rolling, job) == "RUNNING", lambda: f"{job} runs: {rolling.said()}")
    return job


def end(rolling: RollingSandbox, *jobs: str) -> None:
    """Have jobs end well."""
    for job in jobs:
        rolling.run(f"scancel --batch --signal=USR1 {job}")
        wait_until(lambda: state(rolling, job) == "COMPLETED", lambda: state(rolling, job))  # noqa: B023 - at once


def state(rolling: RollingSandbox, job: str) -> str:
    return rolling.run(f"squeue --noheader --states=all --jobs={job} --format=%T").stdout.strip()


def drained(rolling: RollingSandbox) -> list[str]:
    return [name for name, states in rolling.states().items() if "DRAIN" in states]


@pytest.mark.in_gate
def test_idle_nodes_get_new_pods_one_at_a_time_and_a_busy_one_when_its_job_has_ended(rolling: RollingSandbox) -> None:
    rolling.run("scontrol update nodename=cpu-3 state=drain reason='a fan'")
    job = submit(rolling, "cpu-0")
    rolling.set_pool(revision="second")
    await_revisions(rolling, "first", "second", "second", "second")
    assert state(rolling, job) == "RUNNING"
    assert rolling.revision_of(rolling.all_pods()["cpu-0"]) == "first"
    wait_until(
        lambda: rolling.run("scontrol show node cpu-0 | grep -o Reason=.*").stdout.startswith(f"Reason={ROLLS}"),
        lambda: f"cpu-0 takes no more jobs: {rolling.states()}\n{rolling.said()}",
    )
    assert state(rolling, job) == "RUNNING"
    end(rolling, job)
    await_revisions(rolling, *["second"] * 4)
    await_states(rolling, {**ALL_IDLE, "cpu-3": "IDLE+DRAIN+DYNAMIC_NORM"})
    assert "Reason=a fan" in rolling.run("scontrol show node cpu-3").stdout
    rolling.run("scontrol update nodename=cpu-3 state=resume")
    ended = re.findall(r"(\S+): ending the pods", rolling.controller.log("elastic"))
    assert sorted(ended) == list(ALL_IDLE), "one at a time"


def test_a_version_that_does_not_start_takes_one_node_and_the_old_one_comes_back(rolling: RollingSandbox) -> None:
    before = rolling.revision
    job = submit(rolling, "cpu-0")
    rolling.set_pool(revision=BAD)
    await_revisions(rolling, BAD, before, before, before)
    wait_until(
        lambda: "not ready with their new pods: cpu-" in rolling.controller.log("elastic"),
        lambda: f"it says so: {rolling.said()}",
    )
    assert sorted(rolling.states().values()).count("IDLE+DYNAMIC_NORM") == 2, "the others take jobs"
    rolling.set_pool(revision=before)
    await_revisions(rolling, *[before] * 4)
    wait_until(lambda: len(rolling.states()) == 4, "the node is back")
    if state(rolling, job) == "RUNNING":
        end(rolling, job)
    await_states(rolling, ALL_IDLE)


def test_a_roll_that_is_taken_back_gives_busy_nodes_back(rolling: RollingSandbox) -> None:
    before = rolling.revision
    jobs = [submit(rolling, f"cpu-{number}") for number in range(4)]
    rolling.set_pool(revision="third")
    wait_until(lambda: len(drained(rolling)) == 1, lambda: f"one is drained: {rolling.said()}")
    rolling.set_pool(revision=before)
    wait_until(lambda: not drained(rolling), lambda: f"none is: {rolling.said()}")  # Slurm keeps the reason meanwhile
    assert [state(rolling, job) for job in jobs] == ["RUNNING"] * 4
    end(rolling, *jobs)
    assert rolling.revisions() == [before] * 4
    rolling.run(["scancel", *jobs])
    await_states(rolling, ALL_IDLE)
