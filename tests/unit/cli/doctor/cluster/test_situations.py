"""Each situation, made in a recorded cluster: its cause comes first, with what mends it."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest

from cli.doctor.cluster.findings import SHOWN, Finding, Severity
from cli.doctor.cluster.rules import diagnose, diagnose_job
from cli.doctor.cluster.rules.jobs import _TABLE, Kind, meaning
from cli.status.snapshot import KnownJob, Snapshot
from config import load_config
from slurm.elastic import settings
from slurm.names import ACTIVE, ELASTIC_SETTINGS
from tests import stacks
from tests.stacks import with_change
from tests.unit.cli.doctor.cluster.recorded_cluster import RecordedCluster, recorded
from tests.unit.cli.doctor.cluster.situations import (
    SITUATIONS,
    URL,
    Ill,
    ago,
    both,
    drained,
    lease,
    lost_slurmctld,
    no_config,
    no_slurmd,
    populating,
    queued,
    restarts,
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


def since(condition: str, seconds: int) -> Ill:
    """What is said of a worker's pod is said for so long."""

    def make(cluster: RecordedCluster) -> None:
        conditions = cluster.thing("Pod", "default-1")["status"]["conditions"]
        next(one for one in conditions if one["type"] == condition)["lastTransitionTime"] = ago(seconds)

    return make


def tried_again(cluster: RecordedCluster) -> None:
    """A step of `up` failed once and then succeeded: the pod of the first try stays."""
    pod = deepcopy(cluster.thing("Pod", "policy-"))
    pod["metadata"] |= {"name": "policy-e6cd26eb-first", "uid": "first"}
    pod["status"]["phase"] = "Failed"
    cluster.objects.append(pod)


def mounted_since(cluster: RecordedCluster) -> None:
    """The ConfigMap is back, and the first container waits for something else."""
    no_config(cluster)
    munged = {"name": "munged", "state": {"running": {}}}
    cluster.thing("Pod", "default-1")["status"]["initContainerStatuses"] = [munged]


def two_controllers(cluster: RecordedCluster) -> None:
    """The second one is active."""
    pod = deepcopy(cluster.thing("Pod", "controller-0"))
    pod["metadata"] |= {"name": "controller-1", "uid": "second", "labels": {**pod["metadata"]["labels"], ACTIVE: "yes"}}
    cluster.objects.append(pod)
    cluster.thing("StatefulSet", "controller")["spec"]["replicas"] = 2


def test_of_two_controllers_the_one_that_stands_by_may_be_missing_and_that_is_told() -> None:
    for ill in (lambda c: c.remove("Pod", "controller-0"), lambda c: c.waiting("controller-0", "CrashLoopBackOff")):
        (found,) = said_of(two_controllers, ill)
        assert (found.severity, "controller-0" in found.cause) == ("warning", True)
    cluster = recorded()
    two_controllers(cluster)
    assert cluster.look().active_controller == "controller-1"
    cluster.waiting("controller-1", "CrashLoopBackOff")
    assert diagnose(cluster.look())[0].severity == "error"


def test_of_the_log_of_a_program_that_has_ended_its_end_is_shown() -> None:
    def ended(cluster: RecordedCluster) -> None:
        restarts("controller-0")(cluster)
        last = cluster.thing("Pod", "controller-0")["status"]["containerStatuses"][0]["lastState"]["terminated"]
        last["message"] = "slurmctld: JobId=7 accepted\n" * 70 + "standby: no longer active: another took over\n"

    (found,) = said_of(ended)
    assert any(len(seen) <= SHOWN and seen.rstrip().endswith("another took over") for seen in found.evidence)


FINE: dict[str, Ill] = {
    "two controllers": two_controllers,
    "a controller that has handed over to the other one": both(two_controllers, restarts("controller-0", 1)),
    "nothing": lambda _: None,
    **{reason: queued("12", reason) for reason in ("Priority", "JobHeldUser", "QOSMaxJobsPerUserLimit")},
    "a step that succeeded at the second try": tried_again,
    "slurmd registers after its pod is ready": both(no_slurmd, since("Ready", 5)),
    "a pod whose ConfigMap came late": mounted_since,
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


def lacks_its_config(age: int) -> Ill:
    """A pod of so many seconds."""
    return both(no_config, lambda c: c.thing("Pod", "default-1")["metadata"].update(creationTimestamp=ago(age)))


def refused_since(age: int) -> Ill:
    """Kubernetes has refused to make a pod for so many seconds."""
    return both(
        lambda c: c.remove("Pod", "login-0"),
        lambda c: c.warn("StatefulSet", "login", "FailedCreate", "no service account", first=ago(age)),
    )


@pytest.mark.parametrize("make", [lacks_its_config, refused_since])
@pytest.mark.parametrize(("age", "changes", "severity"), [(5, True, "note"), (5, False, "error"), (100, True, "error")])
def test_what_is_refused_for_seconds_is_an_error_unless_it_is_just_being_made(
    make: Callable[[int], Ill], age: int, changes: bool, severity: str
) -> None:
    found = said_of(make(age), *([lease(30)] if changes else []))
    assert found[0].severity == severity


@pytest.mark.parametrize(
    "name",
    [
        "no machine has room", "pods are refused", "the jail's pod is refused", "image", "machine is lost",
        "slurmctld's machine is lost",
        "apply was cut short",
    ],
)  # fmt: skip
def test_what_follows_from_a_cause_is_no_finding_of_its_own(name: str) -> None:
    (found,) = said_of(SITUATIONS[name][0])
    assert found.consequences


def test_a_pod_that_may_take_a_year_to_end_hangs_where_its_machine_is_lost() -> None:
    (found,) = said_of(lost_slurmctld)
    assert any(text.startswith("pod controller-0 should have ended ") for text in found.consequences)
    assert found.evidence == (f'error: Post "{URL}": dial tcp 10.99.0.3:10250: connect: no route to host',)
    back = said_of(lost_slurmctld, lambda c: c.refused.clear())  # slurmctld answers: nothing is to be done by force
    assert "delete node" not in back[0].mend


def test_a_jail_that_is_populated_at_the_second_try_is_not_ill_for_the_first() -> None:
    cluster = recorded()
    populating(None)(cluster)
    first = deepcopy(cluster.thing("Pod", "populate-jail"))
    first["metadata"] |= {"name": "populate-jail-first", "uid": "first", "creationTimestamp": "2020-01-01T00:00:00Z"}
    first["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 1, "reason": "Error"}}
    cluster.objects.append(first)
    (found,) = diagnose(cluster.look())
    assert found.cause.startswith("the jail is being populated")


def test_a_jail_for_which_nobody_waits_any_more_is_whole() -> None:
    cluster = recorded()
    populating(None)(cluster)
    cluster.thing("Pod", "login-0")["status"] = deepcopy(cluster.thing("Pod", "login-1")["status"])
    assert not diagnose(cluster.look())


def test_an_image_that_is_not_there_does_not_follow_from_anything() -> None:
    found = said_of(restarts("controller-0"), lambda c: c.waiting("default-1", "ImagePullBackOff"))
    assert {"pod controller-0", "pod default-1"} <= {item.about for item in found}


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


# ---------------------------------------------------------------- elastic pools

PAUSED = "slurmstack/elastic: no capacity, 3 in vain, again at 2026-11-26T07:38:31Z"
NO_START = "slurmstack/elastic: no node comes, 1 in vain, again at 2026-11-26T07:38:31Z: default-0: ImagePullBackOff"
LATE = "slurmstack/elastic: did not come, 2 in vain, again at 2026-11-26T07:38:31Z: Unschedulable: Insufficient cpu"


def elastic(cluster: RecordedCluster) -> Snapshot:
    """As if the one pool were elastic."""
    config = load_config(with_change(stacks.dev(), "worker_nodes.default.size", {"max": 2}))
    metadata = {
        "name": "default",
        "annotations": {ELASTIC_SETTINGS: settings("default", config.worker_nodes["default"])},
        "labels": {"app.kubernetes.io/part-of": "slurmstack"},
    }
    cluster.objects.append({"kind": "PodTemplate", "metadata": metadata})
    return replace(cluster.look(), config=config)


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


def test_an_elastic_pool_that_was_changed_by_hand_is_found() -> None:
    """The program `elastic` leaves it alone, or does something else than the stack file says."""
    cluster = recorded()
    off(cluster)
    there = elastic(cluster)
    cluster.thing("PodTemplate", "default")["metadata"]["annotations"][ELASTIC_SETTINGS] = "{}"
    changed = replace(cluster.look(), config=there.config)
    cluster.remove("PodTemplate", "default")
    gone = replace(cluster.look(), config=there.config)
    for look in (changed, gone):
        (found,) = diagnose(look)
        assert (found.about, "slurmstack up" in found.mend) == ("pool default", True)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (PAUSED, "no capacity, 3 in vain, again at 2026-11-26T07:38:31Z"),
        (NO_START, "no node comes, 1 in vain, again at 2026-11-26T07:38:31Z: default-0: ImagePullBackOff"),
        (LATE, "did not come, 2 in vain, again at 2026-11-26T07:38:31Z: Unschedulable: Insufficient cpu"),
    ],
)
def test_a_pool_without_machines_is_the_one_cause_of_jobs_that_wait(reason: str, cause: str) -> None:
    cluster = recorded()
    off(cluster, "DRAIN", reason=reason)
    cluster.job("12", "Resources")
    (found,) = diagnose(elastic(cluster))
    assert found.cause.startswith(f"pool default lacks nodes: {cause}")
    assert found.severity in {"warning", "error"}, "stock for some of a job's nodes may never be enough"
    assert found.consequences
    assert cluster.explain("12", elastic(cluster))[0].cause == found.cause
    assert "nodename=default-0,default-1 state=resume" in found.mend


@pytest.mark.parametrize(
    ("said", "mend"),
    [
        ("pods is forbidden: exceeded quota: team, limited: pods=0", "resourcequota"),
        ("pods is forbidden: ValidatingAdmissionPolicy 'slurm-elastic.default' denied the request", "slurmstack up"),
        ("ImagePullBackOff: Back-off pulling image", "correct the image"),
        ("Unschedulable: Insufficient cpu", "pods -l slurmstack/pool=default"),
    ],
)
def test_why_a_pool_pauses_decides_what_helps(said: str, mend: str) -> None:
    cluster = recorded()
    off(cluster, "DRAIN", reason=f"{PAUSED}: default-0: {said}")
    (found,) = diagnose(elastic(cluster))
    assert mend in found.mend


def test_a_node_that_shall_come_and_has_no_pod_is_found_before_slurm_gives_it_up() -> None:
    cluster = recorded()
    off(cluster)
    cluster.node("default-1", "MIXED", "CLOUD", "POWERING_UP", "NOT_RESPONDING")
    (found,) = diagnose(elastic(cluster))
    assert (found.about, "default-1 shall come" in found.cause, "deployment/elastic -c elastic" in found.mend) == (
        "pool default", True, True,
    )  # fmt: skip


def test_a_pod_that_runs_while_slurm_waits_for_its_node_is_found() -> None:
    cluster = recorded()
    cluster.node("default-1", "MIXED", "CLOUD", "POWERING_UP", "NOT_RESPONDING")
    cluster.remove("StatefulSet", "default")
    pod = cluster.thing("Pod", "default-1")
    pod["metadata"]["ownerReferences"] = [{"kind": "PodTemplate", "name": "default"}]
    later = replace(elastic(cluster), now=elastic(cluster).now + 86400)
    assert ["default-1 makes it anew" in found.mend for found in diagnose(later) if found.about == "pool default"] == [
        True
    ]


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
        "pod default-1 waits for a machine: 0/2 nodes are available: 2 Insufficient cpu",
    )


# ---------------------------------------------------------------- Slurm's reasons in words

KINDS: dict[Kind, tuple[str, ...]] = {
    "turn": ("Resources", "ReqNodeNotAvail, Reserved for maintenance", "None"),
    "limit": ("QOSGrpCpuLimit", "AssocMaxJobsLimit", "MaxJobsPerAccount"),
    # The last one after `scontrol requeuehold`, as Slurm 24.11 was seen to write it.
    "held": ("JobHeldAdmin", "launch failed requeued held", "job requeued in held state"),
    "never": ("BadConstraints", "PartitionDown", "QOSNotAllowed", "QOSMaxWallDurationPerJobLimit", "MaxMemPerLimit"),
    "unknown": ("SomethingNew",),
}


@pytest.mark.parametrize(("kind", "reason"), [(kind, reason) for kind, found in KINDS.items() for reason in found])
def test_a_reason_has_its_kind_and_one_that_is_new_is_shown_as_it_is(kind: Kind, reason: str) -> None:
    said = meaning(reason)
    assert said.kind == kind
    assert said.mend
    assert kind != "unknown" or reason in said.words


@pytest.mark.parametrize(
    ("found", "why", "severity"),
    [
        (
            "default-0: [job 12] prolog failed status=1:0",
            "is tried again after an error: default-0: [job 12]",
            "warning",
        ),
        ("the log of default-0/slurmd: no answer within 5 s", "or was just requeued", "note"),
    ],
)
def test_a_job_that_is_tried_again_has_the_error_of_its_node_for_a_reason(
    found: str, why: str, severity: Severity
) -> None:
    cluster = recorded()
    cluster.job("12", "BeginTime")
    (said,) = diagnose_job(cluster.look(), KnownJob(id="12", present=(), runs=(), missing={}), [found])
    assert why in said.cause
    assert found in said.evidence
    assert said.severity == severity


def test_a_job_that_asks_for_more_nodes_than_its_partition_has_says_so() -> None:
    cluster = recorded()
    cluster.job("12", "Resources", number="9")
    (found,) = cluster.explain("12", cluster.look())
    assert "waits: asks for 9 nodes, and its partition has 2" in found.cause
    assert found.severity == "warning"


def test_no_command_shows_what_users_wrote_as_it_is() -> None:
    for _, _, _, mend in [*_TABLE, ("", "", "", meaning("SomethingNew").mend)]:
        for command in re.findall(r"(?:squeue|sprio|scontrol show job) [^;]*", mend):
            assert re.search(r"\| cat -v$| (--format|-O)\b", command), command
            assert not re.search(r"%[jkaoZw]", command), command
