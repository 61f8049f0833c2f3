"""What is said of elastic pools: nodes that are off are as they should be, and a pool without machines is one cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.doctor.cluster.diagnose import diagnose, diagnose_job
from cli.doctor.cluster.facts import Facts, Pool
from tests.unit.cli.doctor.cluster.ills import unplaced
from tests.unit.cli.doctor.cluster.recorded import RecordedCluster, recorded

PAUSED = "slurmstack/elastic: no capacity, 3 in vain, again at 2026-11-26T07:38:31Z"
HELD = "slurmstack/elastic: held back in the window sat sun 00:00-24:00 Europe/Berlin"
ASIDE = "slurmstack/elastic: set aside after 10 starts in vain; resume its nodes when there is capacity"


def look(cluster: RecordedCluster) -> Facts:
    """As if the one pool were elastic."""
    return replace(cluster.look(), pools={"default": Pool(size=2, elastic=True)})


def off(cluster: RecordedCluster, *states: str, reason: str = "") -> None:
    for number in range(2):
        cluster.remove("Pod", f"default-{number}")
        cluster.node(f"default-{number}", "IDLE", "CLOUD", "POWERED_DOWN", *states, reason=reason, by="root")
    cluster.remove("StatefulSet", "default")


def test_nodes_that_are_off_are_no_finding() -> None:
    cluster = recorded()
    off(cluster)
    cluster.slurm["partitions"] = (
        0,
        "PartitionName=elastic-default Hidden=YES Nodes=default-[0-1] State=INACTIVE TotalCPUs=4",
    )
    assert diagnose(look(cluster)) == ()


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (PAUSED, "pool default pauses: 3 times in a row no machine came"),
        (ASIDE, "pool default is set aside"),
        (HELD, "pool default may have fewer nodes just now, in its window sat sun 00:00-24:00 Europe/Berlin"),
    ],
)
def test_a_pool_without_machines_is_the_one_cause_of_jobs_that_wait(reason: str, cause: str) -> None:
    cluster = recorded()
    off(cluster, "DRAIN", reason=reason)
    cluster.job("12", "Resources")
    (found,) = diagnose(look(cluster))
    assert found.cause.startswith(cause)
    assert found.consequences
    assert diagnose_job(look(cluster), "12")[0].cause == found.cause
    assert ("state=resume" in found.mend) is (reason == ASIDE)


def test_a_pod_that_waits_for_a_machine_is_noted() -> None:
    cluster = recorded()
    unplaced("0/2 nodes are available: 2 Insufficient cpu.")(cluster)
    cluster.node("default-1", "MIXED", "CLOUD", "POWERING_UP")
    pod = cluster.thing("Pod", "default-1")
    pod["metadata"]["ownerReferences"] = [{"kind": "PodTemplate", "name": "default"}]
    cluster.remove("StatefulSet", "default")
    (found,) = diagnose(look(cluster))
    assert (found.severity, found.cause) == (
        "note",
        "pod default-1 waits for a machine: no machine has enough cpu left",
    )
