"""An elastic pool on machines that come and go, with a stand-in for the autoscaler (tests/e2e/played_machines.py).

Where machines are played, no slurmd runs, so that the nodes never register: what is shown is who gets which machine,
and when it goes. Where they are real ones, and not enough are in stock, a job gets a part of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.asking_doctor import findings
from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.e2e.played_machines import PlayedMachines, StockedMachines

pytestmark = pytest.mark.disruptive  # others would find their machines beside their own

POOL, LABEL = "cloud", "slurmstack-test/played"
RESUME_SECONDS = 30
SETTINGS = {
    "size": {"max": 2},
    "idle_timeout": "10s",
    "resume_timeout": f"{RESUME_SECONDS}s",
    "node_selector": {LABEL: "yes"},
    "tolerations": [{"key": LABEL}],
    "resources": {"cpus": 1, "memory": "768Mi", "cpu_request": "10m"},
}
ROOM = {"cpu": "2", "memory": "1200Mi", "ephemeral-storage": "20Gi"}
"""Of a machine: one worker."""


@contextmanager
def elastic_pool(slurm: SlurmOnKubernetes, settings: dict[str, Any]) -> Iterator[None]:
    before = slurm.sections
    try:
        slurm.sections = {**before, "partitions": {**before["partitions"], POOL: {"pools": [POOL]}}}
        slurm.change("worker_nodes", {**before["worker_nodes"], POOL: settings})
        names = {f"{POOL}-{number}" for number in range(settings["size"]["max"])}
        wait_until(lambda: names <= set(slurm.nodes()), "slurmctld knows the nodes that are off")
        yield
    finally:
        slurm.slurm("scancel --user=alice", check=False)
        slurm.sections = before
        slurm.up()
        wait_until(lambda: not machines_of(slurm), "no pod is left on those machines")
        slurm.await_idle("default-0", "default-1")


@pytest.fixture
def machines(two_nodes: SlurmOnKubernetes) -> Iterator[PlayedMachines]:
    with PlayedMachines(LABEL, room=ROOM) as played, elastic_pool(two_nodes, SETTINGS):
        yield played


def machines_of(slurm: SlurmOnKubernetes) -> dict[str, str]:
    """Which machine has each worker of the pool; none: it waits."""
    pods = slurm.pods().items()
    return {name: pod["spec"].get("nodeName", "") for name, pod in pods if LABEL in pod["spec"].get("nodeSelector", {})}


def test_machines_come_for_pods_stay_while_one_holds_them_and_go_after_it(
    two_nodes: SlurmOnKubernetes, machines: PlayedMachines
) -> None:
    slurm = two_nodes
    assert machines.machines() == [], "nobody needs one yet"

    job = slurm.submit("true", f"--partition={POOL}")
    wait_until(lambda: machines_of(slurm) == {"cloud-0": "played-0"}, "a machine has come for the worker")

    uid = slurm.pod_uids()["cloud-0"]
    machines.least = 2
    wait_until(lambda: len(machines.machines()) == 2, "one machine too many")
    machines.least = 0
    wait_until(lambda: machines.machines() == ["played-0"], "the one that nothing holds is taken away")
    assert slurm.pod_uids()["cloud-0"] == uid
    assert slurm.pods()["cloud-0"]["spec"]["nodeName"] == "played-0"

    # Its slurmd never comes: the pool gives it up, and the autoscaler what it was on.
    shown = f"sinfo --noheader --partition={POOL} --format=%E"
    wait_until(lambda: "no node comes, 1 in vain" in slurm.slurm(shown), "the pool pauses", timeout=2 * RESUME_SECONDS)
    assert slurm.job_state(job) == "PENDING"
    wait_until(lambda: machines.machines() == [], "its machine goes")
    assert machines.problem is None


def free_cpus(slurm: SlurmOnKubernetes) -> dict[str, int]:
    """What no pod has asked for, by machine; in thousandths of a core."""
    found = {}
    for node in slurm.kubectl.items("node"):
        found[node["metadata"]["name"]] = _milli(node["status"]["allocatable"]["cpu"])
    for pod in slurm.kubectl.items("pod", "--all-namespaces"):
        if pod["status"]["phase"] in {"Pending", "Running"} and "nodeName" in pod["spec"]:
            always = [one for one in pod["spec"].get("initContainers", []) if one.get("restartPolicy") == "Always"]
            for container in [*pod["spec"]["containers"], *always]:
                asked = container.get("resources", {}).get("requests", {}).get("cpu", "0")
                found[pod["spec"]["nodeName"]] -= _milli(asked)
    return found


def _milli(cpus: str) -> int:
    return int(cpus[:-1]) if cpus.endswith("m") else 1000 * int(cpus)


@pytest.fixture
def stocked(two_nodes: SlurmOnKubernetes) -> Iterator[StockedMachines]:
    """The fuller one of two machines is in stock. It has room for two workers, and the other one for two at least."""
    free = free_cpus(two_nodes)
    fuller = min(free, key=lambda name: free[name])
    resources = {"cpus": 1, "memory": "768Mi", "cpu_request": f"{free[fuller] * 42 // 100}m"}  # munged's comes to it
    settings = {**SETTINGS, "size": {"max": 4}, "idle_timeout": "10m", "resources": resources}
    with StockedMachines(LABEL, [fuller]) as machines, elastic_pool(two_nodes, settings):
        yield machines


@pytest.mark.timeout(900)
def test_a_job_of_four_nodes_gives_back_the_two_that_are_in_stock_and_runs_when_there_are_four(
    two_nodes: SlurmOnKubernetes, stocked: StockedMachines
) -> None:
    slurm = two_nodes

    def up() -> set[str]:
        off = {"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "DOWN"}
        return {name for name, states in slurm.nodes().items() if name.startswith(POOL) and not states & off}

    job = slurm.submit("srun hostname", f"--partition={POOL}", "--nodes=4", "--output=hosts")
    wait_until(lambda: len(up()) == 2, lambda: f"two nodes come: {slurm.nodes()}")
    assert sorted(machines_of(slurm).values()) == ["", "", *2 * stocked.stock]

    why, shown = "did not come, 1 in vain", f"sinfo --noheader --partition={POOL} --format=%E"
    wait_until(lambda: why in slurm.slurm(shown), "the pool pauses", timeout=2 * RESUME_SECONDS)
    (said,) = (cause for item in findings(slurm) if (cause := item["cause"]).startswith(f"pool {POOL} lacks nodes: "))
    assert why in said
    assert "Insufficient cpu" in said
    wait_until(lambda: not up() and not machines_of(slurm), lambda: f"the job lets go of both: {slurm.nodes()}")
    assert slurm.job_state(job) == "PENDING"
    wait_until(lambda: stocked.machines() == [], "their machine goes")

    stocked.stock = [item["metadata"]["name"] for item in slurm.kubectl.items("node")]

    def has_run() -> bool:
        slurm.run_now(job)
        return slurm.job_state(job) == "COMPLETED"

    wait_until(has_run, lambda: f"the job runs: {slurm.nodes()}", slowest=1)
    assert sorted(slurm.ssh("cat hosts").split()) == [f"{POOL}-{number}" for number in range(4)]
    assert stocked.problem is None
