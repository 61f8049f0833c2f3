"""An elastic pool on machines that come and go, with a stand-in for the autoscaler (tests/e2e/played_machines.py).

No slurmd runs there, so that the nodes never register: what is shown is who gets which machine, and when it goes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.harness import SlurmOnKubernetes, wait_until
from tests.e2e.played_machines import PlayedMachines

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


@pytest.fixture
def machines(two_nodes: SlurmOnKubernetes) -> Iterator[PlayedMachines]:
    slurm, before = two_nodes, two_nodes.sections
    with PlayedMachines(LABEL, room=ROOM) as played:
        try:
            slurm.sections = {**before, "partitions": {**before["partitions"], POOL: {"pools": [POOL]}}}
            slurm.change("worker_nodes", {**before["worker_nodes"], POOL: SETTINGS})
            yield played
        finally:
            slurm.slurm("scancel --user=alice", check=False)
            slurm.sections = before
            slurm.up()
            wait_until(lambda: not machines_of(slurm), "no pod is left on those machines")
            slurm.await_idle("default-0", "default-1")


def machines_of(slurm: SlurmOnKubernetes) -> dict[str, str]:
    """Which machine has each worker of the pool; none: it waits."""
    pods = slurm.pods().items()
    return {name: pod["spec"].get("nodeName", "") for name, pod in pods if LABEL in pod["spec"].get("nodeSelector", {})}


def test_machines_come_for_pods_stay_while_one_holds_them_and_go_after_it(
    two_nodes: SlurmOnKubernetes, machines: PlayedMachines
) -> None:
    slurm = two_nodes
    wait_until(lambda: {"cloud-0", "cloud-1"} <= set(slurm.nodes()), "slurmctld knows the nodes that are off")
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
