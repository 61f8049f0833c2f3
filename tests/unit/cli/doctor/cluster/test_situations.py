"""Each situation, made in a recorded cluster: its cause comes first, with what mends it."""

from __future__ import annotations

from copy import deepcopy

import pytest

from cli.doctor.cluster.diagnose import diagnose
from slurm.names import LOG_SHIPPER
from tests.unit.cli.doctor.cluster.ills import Ill, ago, both, ending, queued
from tests.unit.cli.doctor.cluster.recorded import recorded
from tests.unit.cli.doctor.cluster.situations import SITUATIONS


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_cause_comes_first_with_what_mends_it(name: str) -> None:
    make, cause, mend = SITUATIONS[name]
    cluster = recorded()
    make(cluster)
    first = diagnose(cluster.look())[0]
    assert cause in first.cause
    assert mend in first.mend


def test_login_nodes_that_a_program_has_scaled_are_no_change_by_hand() -> None:
    cluster = recorded()
    login = cluster.thing("StatefulSet", "login")
    login["spec"]["replicas"] = 1
    owner = {"manager": "slurmstack-elastic", "operation": "Update", "subresource": "scale", "time": ago(60)}
    login["metadata"]["managedFields"].append({**owner, "fieldsV1": {"f:spec": {"f:replicas": {}}}})
    cluster.remove("Pod", "login-1")
    assert diagnose(cluster.look()) == ()


def test_a_healthy_cluster_has_no_finding_and_all_of_it_was_looked_at() -> None:
    facts = recorded().look()
    assert diagnose(facts) == ()
    assert not facts.unread
    assert (len(facts.pods), len(facts.nodes), len(facts.machines), len(facts.claims)) == (12, 2, 2, 3)


@pytest.mark.parametrize("name", ["no machine has room", "quota", "image", "machine is lost", "apply was cut short"])
def test_what_follows_from_a_cause_is_no_finding_of_its_own(name: str) -> None:
    cluster = recorded()
    SITUATIONS[name][0](cluster)
    found = diagnose(cluster.look())
    assert len(found) == 1
    assert found[0].consequences


@pytest.mark.parametrize(
    "reason", ["Priority", "Resources", "BeginTime", "Dependency", "JobHeldUser", "QOSMaxJobsPerUserLimit"]
)
def test_jobs_that_wait_as_they_should_are_no_finding(reason: str) -> None:
    cluster = recorded()
    cluster.job("12", reason)
    assert diagnose(cluster.look()) == ()


def test_many_jobs_with_one_reason_are_one_finding() -> None:
    cluster = recorded()
    for number in range(500):
        cluster.job(str(100 + number), "PartitionTimeLimit")
    found = diagnose(cluster.look())
    assert len(found) == 1
    assert found[0].cause.startswith("500 jobs never start as they are")


def test_what_keeps_more_from_working_comes_before_what_keeps_less() -> None:
    cluster = recorded()
    cluster.node("default-1", "IDLE", "DRAIN", reason="Low RealMemory", by="slurm")
    cluster.slurm["database"] = (124, "")
    cluster.waiting("controller-0", "ImagePullBackOff")
    causes = [item.about for item in diagnose(cluster.look())]
    assert causes == ["pod controller-0", "accounting", "node default-1"]


@pytest.mark.parametrize(
    "step",
    [
        ending(60),
        queued("12", "Resources", feature="[rack1|rack2]"),
        queued("12", "Licenses", licenses="matlab:2"),
        queued("12", "Licenses", licenses="matlab:3|ansys:1"),
        queued("12", "Resources", node_tres="gres/shard:2"),
        both(
            lambda c: c.node("default-0", "IDLE", gres="gpu:1g.10gb:7(S:0)"),
            queued("12", "Resources", node_tres="gres/gpu:1"),
        ),
    ],
    ids=["just ended", "language of features", "enough licenses", "either license", "no GPU", "part of a GPU"],
)
def test_what_may_still_start_or_end_by_itself_is_no_finding(step: Ill) -> None:
    cluster = recorded()
    step(cluster)
    assert diagnose(cluster.look()) == ()


@pytest.mark.parametrize(
    "scheduler", ["Insufficient cpu", "had untolerated taint {gpu: yes}", "didn't match Pod's node affinity/selector"]
)
def test_what_is_no_pool_is_not_mended_in_the_stack_file_s_pools(scheduler: str) -> None:
    cluster = recorded()
    cluster.unplaced("login-0", f"0/2 nodes are available: 2 node(s) {scheduler}.")
    first = diagnose(cluster.look())[0]
    assert first.about == "pod login-0"
    assert first.mend
    assert "worker_nodes" not in first.mend


@pytest.mark.parametrize(
    ("reason", "mend"), [("ImagePullBackOff", "logs.otlp.image"), ("CreateContainerConfigError", "logs.otlp.headers")]
)
def test_what_the_log_shipper_takes_from_the_site_is_for_the_site_to_mend(reason: str, mend: str) -> None:
    cluster = recorded()
    pod = deepcopy(cluster.thing("Pod", "default-1"))
    pod["metadata"] |= {"name": "log-shipper-abcde", "uid": "shipper"}
    pod["metadata"]["labels"]["app.kubernetes.io/component"] = LOG_SHIPPER
    cluster.objects.append(pod)
    cluster.waiting("log-shipper-abcde", reason)
    (first,) = diagnose(cluster.look())
    assert mend in first.mend
