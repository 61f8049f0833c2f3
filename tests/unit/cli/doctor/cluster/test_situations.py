"""Each situation, made in a recorded cluster: its cause comes first, with what mends it."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import replace

import pytest

from cli.doctor.cluster import reasons
from cli.doctor.cluster.collect import collect
from cli.doctor.cluster.diagnose import diagnose, diagnose_job
from cli.doctor.cluster.facts import Facts, Pool
from cli.doctor.cluster.findings import Finding
from cli.doctor.cluster.reasons import Kind, meaning
from config import load_config
from images.common.slurm_conf import setting
from slurm.conf import render
from slurm.names import LOG_SHIPPER
from tests import stacks
from tests.stacks import with_change
from tests.unit.cli.doctor.cluster.recorded import CONFIG, RecordedCluster, recorded
from tests.unit.cli.doctor.cluster.situations import (
    SITUATIONS,
    Ill,
    ago,
    both,
    drained,
    ending,
    no_slurmd,
    queued,
    slurm_says,
    unplaced,
)


def said_of(*steps: Ill) -> tuple[Finding, ...]:
    """What is found after these steps."""
    cluster = recorded()
    for step in steps:
        step(cluster)
    return diagnose(cluster.look())


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_cause_comes_first_with_what_mends_it(name: str) -> None:
    make, cause, mend = SITUATIONS[name]
    first = said_of(make)[0]
    assert cause in first.cause
    assert mend in first.mend


def scaled_login(cluster: RecordedCluster) -> None:
    """By a controller: that is no change by hand."""
    login = cluster.thing("StatefulSet", "login")
    login["spec"]["replicas"] = 1
    owner = {"manager": "kube-controller-manager", "operation": "Update", "subresource": "scale", "time": ago(60)}
    login["metadata"]["managedFields"].append({**owner, "fieldsV1": {"f:spec": {"f:replicas": {}}}})
    cluster.remove("Pod", "login-1")


def since(condition: str, seconds: int) -> Ill:
    """What is said of a worker's pod is said for so long."""

    def make(cluster: RecordedCluster) -> None:
        conditions = cluster.thing("Pod", "default-1")["status"]["conditions"]
        next(one for one in conditions if one["type"] == condition)["lastTransitionTime"] = ago(seconds)

    return make


AS_THEY_SHOULD = ("Priority", "Resources", "BeginTime", "Dependency", "JobHeldUser", "QOSMaxJobsPerUserLimit")
"""Reasons of jobs that wait."""

FINE: dict[str, Ill] = {
    "nothing": lambda _: None,
    **{reason: queued("12", reason) for reason in AS_THEY_SHOULD},
    "just ended": ending(60),
    "language of features": queued("12", "Resources", feature="[rack1|rack2]"),
    "enough licenses": queued("12", "Licenses", licenses="matlab:2"),
    "either license": queued("12", "Licenses", licenses="matlab:3|ansys:1"),
    "no GPU": queued("12", "Resources", node_tres="gres/shard:2"),
    "part of a GPU": both(
        lambda c: c.node("default-0", "IDLE", gres="gpu:1g.10gb:7(S:0)"),
        queued("12", "Resources", node_tres="gres/gpu:1"),
    ),
    "login nodes that a controller has scaled": scaled_login,
    "slurmd registers after its pod is ready": both(no_slurmd, since("Ready", 5)),
    "a pod that waited long for its machine": both(lambda c: c.unready("default-1"), since("PodScheduled", 30)),
}


@pytest.mark.parametrize("name", FINE)
def test_what_may_still_start_or_end_by_itself_is_no_finding(name: str) -> None:
    assert said_of(FINE[name]) == ()


def test_the_same_is_one_when_it_lasts() -> None:
    """From when the pod is ready, or has its machine, however long that took."""
    assert said_of(no_slurmd, since("Ready", 600))
    late = said_of(lambda c: c.unready("default-1"), since("PodScheduled", 600))
    assert any("is not ready after" in item.cause for item in late)


@pytest.mark.parametrize("name", ["no machine has room", "quota", "image", "machine is lost", "apply was cut short"])
def test_what_follows_from_a_cause_is_no_finding_of_its_own(name: str) -> None:
    (found,) = said_of(SITUATIONS[name][0])
    assert found.consequences


def test_many_jobs_with_one_reason_are_one_finding() -> None:
    (found,) = said_of(*(queued(str(100 + number), "PartitionTimeLimit") for number in range(500)))
    assert found.cause.startswith("500 jobs never start as they are")


def test_what_keeps_more_from_working_comes_before_what_keeps_less() -> None:
    found = said_of(
        drained("Low RealMemory"),
        slurm_says(database=(124, "")),
        lambda c: c.waiting("controller-0", "ImagePullBackOff"),
    )
    assert [item.about for item in found] == ["pod controller-0", "accounting", "node default-1"]


@pytest.mark.parametrize(
    "scheduler", ["Insufficient cpu", "had untolerated taint {gpu: yes}", "didn't match Pod's node affinity/selector"]
)
def test_what_is_no_pool_is_not_mended_in_the_stack_file_s_pools(scheduler: str) -> None:
    first = said_of(lambda c: c.unplaced("login-0", f"0/2 nodes are available: 2 node(s) {scheduler}."))[0]
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


def test_a_job_that_never_starts_is_not_taken_for_others_of_its_size() -> None:
    (found,) = said_of(
        queued("12", "Priority", node_tres="gres/gpu:8"),
        queued("13", "Priority"),
        queued("14", "Priority", licenses="matlab:7"),
        queued("15", "Priority", feature="nosuch"),
        queued("16", "Resources"),
    )
    assert found.cause.startswith("3 jobs never start as they are: asks for what no node has")
    said = [line.partition(" of alice: ") for line in found.evidence[1:]]
    assert [(id_, words[:23]) for id_, _, words in said] == [
        ("12", "asks for 1 node with 1 "),
        ("14", "asks for 7 of license m"),
        ("15", "asks for 1 node with 1 "),
    ]


def test_how_many_records_are_kept_for_a_database_that_is_behind_is_what_slurm_conf_says() -> None:
    (found,) = said_of(slurm_says(statistics=(0, "DBD Agent queue size: 9999\n")))
    kept = setting(render(CONFIG), "MaxDBDMsgs")
    assert kept is not None
    assert found.evidence[0].startswith(f"slurmctld keeps {int(kept):,} of them")


def test_many_jobs_on_many_nodes_that_leave_are_told_within_the_time_of_a_look() -> None:
    """As while a pool of large jobs gets another image: each pod was looked for in the nodes of each job."""
    cluster = recorded()
    nodes, jobs = 500, 5000
    worker = cluster.thing("Pod", "default-1")
    worker["metadata"]["deletionTimestamp"] = "2099-01-01T00:00:00Z"
    for number in range(2, nodes):
        pod = deepcopy(worker)
        pod["metadata"] |= {"name": f"default-{number}", "uid": f"u{number}"}
        cluster.objects.append(pod)
    cluster.job("1", "None", state="RUNNING", nodes=f"default-[0-{nodes - 1}]")
    facts = cluster.look()
    facts = replace(facts, jobs=facts.jobs * jobs)
    found = diagnose(facts)
    assert sum(f"waits for {jobs} jobs" in item.cause for item in found) == nodes - 1


@pytest.mark.parametrize(("pools", "told"), [(("default",), True), (("default", "gpu"), False)])
def test_a_job_is_compared_with_the_pools_of_its_own_partition(pools: tuple[str, ...], told: bool) -> None:
    """Where another pool has nodes that are still to come, they may only be meant for it if it is in there."""
    cluster = recorded()
    cluster.job("12", "Priority", node_tres="gres/gpu:8")
    facts = cluster.look()
    both_pools = {**facts.pools, "gpu": Pool(size=4, elastic=True)}
    found = diagnose(replace(facts, pools=both_pools, partition_pools={"main": pools}))
    assert any("never starts as it is: asks for" in item.cause for item in found) is told


def test_pools_of_partitions_are_those_of_the_stack_file() -> None:
    partitions = {"main": {"pools": ["cpu"], "default": True}, "every": {"pools": ["cpu", "gpu"]}}
    config = load_config(with_change(stacks.existing_full(), "partitions", partitions))
    facts = collect(recorded(), config)
    assert facts.partition_pools == {"main": ("cpu",), "every": ("cpu", "gpu")}


def test_many_jobs_of_a_user_that_are_requeued_are_one_finding() -> None:
    """As with a prolog that fails: each was one, with its commands."""
    (found,) = said_of(*(queued(str(20 + number), "BeginTime", restarts=3 + number) for number in range(5)))
    assert found.cause == "job 20 and 4 more of alice were requeued up to 7 times: they start and fail again"
    assert found.weight == 5


@pytest.mark.parametrize("ill", ["unreachable", "not-ready", "disk-pressure"])
def test_a_taint_that_says_a_machine_is_ill_is_not_to_be_tolerated(ill: str) -> None:
    taint = f"untolerated taint {{node.kubernetes.io/{ill}: }}"
    said = f"0/3 nodes are available: 1 node(s) had untolerated taint {{a: b}}, 2 had {taint}."
    (found,) = said_of(lambda c: c.unplaced("default-1", said))
    assert found.cause == f"pod default-1 cannot be placed: machines that may fit are {ill}, as Kubernetes says"
    assert "taint" not in found.mend
    assert "toler" not in found.mend


# ---------------------------------------------------------------- elastic pools

PAUSED = "slurmstack/elastic: no capacity, 3 in vain, again at 2026-11-26T07:38:31Z"
HELD = "slurmstack/elastic: held back in the window sat sun 00:00-24:00 Europe/Berlin"
ASIDE = "slurmstack/elastic: set aside after 10 starts in vain; resume its nodes when there is capacity"


def elastic(cluster: RecordedCluster) -> Facts:
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
    assert diagnose(elastic(cluster)) == ()


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
    (found,) = diagnose(elastic(cluster))
    assert found.cause.startswith(cause)
    assert found.consequences
    assert diagnose_job(elastic(cluster), "12")[0].cause == found.cause
    assert ("state=resume" in found.mend) is (reason == ASIDE)


def test_a_pod_that_waits_for_a_machine_is_noted() -> None:
    cluster = recorded()
    unplaced("0/2 nodes are available: 2 Insufficient cpu.")(cluster)
    cluster.node("default-1", "MIXED", "CLOUD", "POWERING_UP")
    pod = cluster.thing("Pod", "default-1")
    pod["metadata"]["ownerReferences"] = [{"kind": "PodTemplate", "name": "default"}]
    cluster.remove("StatefulSet", "default")
    (found,) = diagnose(elastic(cluster))
    assert (found.severity, found.cause) == (
        "note",
        "pod default-1 waits for a machine: no machine has enough cpu left",
    )


# ---------------------------------------------------------------- Slurm's reasons in words

REQUEUED = "job requeued in held state"
"""After `scontrol requeuehold`, as Slurm 24.11 was seen to write it."""

KINDS: dict[Kind, tuple[str, ...]] = {
    "turn": ("Resources", "Priority", "Dependency", "BeginTime", "JobArrayTaskLimit", "Licenses", "Reservation",
        "Prolog", "None", "ReqNodeNotAvail", "NodeDown"),
    "limit": ("QOSGrpCpuLimit", "QOSMaxJobsPerUserLimit", "QOSMaxGRESPerUser", "AssocGrpGRES", "AssocGrpJobsLimit",
        "AssocMaxJobsLimit", "MaxJobsPerAccount", "QOSUsageThreshold"),
    "held": ("JobHeldUser", "JobHeldAdmin", "launch failed requeued held", "JobHoldMaxRequeue", REQUEUED),
    "never": ("DependencyNeverSatisfied", "BadConstraints", "PartitionDown", "PartitionInactive", "PartitionConfig",
        "PartitionTimeLimit", "PartitionNodeLimit", "InvalidAccount", "InvalidQOS", "QOSNotAllowed",
        "QOSMaxCpuPerJobLimit", "QOSMaxWallDurationPerJobLimit", "AssocMaxCpuPerJobLimit",
        "AssocMaxWallDurationPerJobLimit", "QOSMinCpuNotSatisfied", "ReservationDeleted", "DeadLine", "MaxMemPerLimit"),
    "unknown": ("SomethingNew",),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "reason"), [(kind, reason) for kind, found in KINDS.items() for reason in found])
def test_a_reason_has_its_kind_and_a_command(kind: Kind, reason: str) -> None:
    said = meaning(reason)
    assert said.kind == kind
    assert said.mend


def test_an_unknown_reason_is_shown_as_it_is() -> None:
    assert "SomethingNew" in meaning("SomethingNew").words


def test_the_full_text_tells_more_where_nodes_are_not_available() -> None:
    maintenance = "ReqNodeNotAvail, Reserved for maintenance"
    assert "maintenance reservation" in meaning("ReqNodeNotAvail", maintenance).words
    down = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    assert "down, drained" in meaning("Resources", down).words


def test_no_command_shows_what_users_wrote_as_it_is() -> None:
    for _, _, _, mend in [*reasons._TABLE, ("", "", "", meaning("SomethingNew").mend)]:
        for command in re.findall(r"(?:squeue|sprio|scontrol show job) [^;]*", mend):
            assert re.search(r"\| cat -v$| (--format|-O)\b", command), command
            assert not re.search(r"%[jkaoZw]", command), command
