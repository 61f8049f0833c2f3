"""What `slurmstack status` says of the recorded cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cli.access.reach import login_address
from cli.status.present import print_status
from cli.status.questions import listed_node
from cli.status.read import Pool, Queue, Status, read_status
from config import load_config
from tests import stacks
from tests.fakes.kubectl import FakeKubectl, listed, thing
from tests.stacks import with_change
from tests.unit.cli.doctor.cluster.recorded_cluster import CONFIG, NOW, RecordedCluster, recorded
from tests.unit.cli.doctor.cluster.situations import Ill

Show = Callable[[Status], str]
"""Prints a status; returns what was printed."""


def node(
    name: str, state: str = "idle", since: str = "Unknown", by: str = "Unknown", reason: str = "none"
) -> dict[str, str]:
    """Columns of sinfo."""
    row = {"NodeHost": name, "StateLong": state, "Timestamp": since, "User": by, "Reason": reason}
    return {**row, "Extra": "(null)"}


JAIL = """Filesystem 1024-blocks Used Available Capacity Mounted on
server:/jail 1000 600 400 60% /jail

{"version": "24.11-c1500fd2bc8b"}
"""


@pytest.fixture
def cluster() -> RecordedCluster:
    """Whole, with two idle nodes."""
    there = replace(recorded(), jail=(JAIL, ""))
    there.slurm["sinfo"] = (0, [node("default-0"), node("default-1")])
    return there


@pytest.fixture
def show(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    monkeypatch.setenv("COLUMNS", "200")

    def show(status: Status) -> str:
        print_status(status)
        return capsys.readouterr().out

    return show


@pytest.mark.parametrize("is_active", [True, False])
def test_a_rejected_configuration_is_said_until_another_is_active(cluster: RecordedCluster, is_active: bool) -> None:
    agent = json.loads(cluster.slurm["configuration"][1])
    agent |= {"rejected": {"message": "unrecognized key: Colour"}, **({} if is_active else {"active": "another"})}
    cluster.slurm["configuration"] = (0, json.dumps(agent))
    found = read_status(cluster, CONFIG)
    assert found.configuration == ("active" if is_active else "rejected: unrecognized key: Colour")
    assert found.healthy == is_active


def test_the_last_backup_and_the_last_one_that_was_proven_are_told(cluster: RecordedCluster, show: Show) -> None:
    assert "last backup" not in show(read_status(cluster, CONFIG)), "there are none"
    hours = (datetime.now(UTC) - timedelta(hours=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    found = [thing("CronJob", "backup", status={"lastSuccessfulTime": hours})]
    cluster.objects.extend([*found, thing("CronJob", "backups"), thing("CronJob", "rehearse")])
    shown = show(read_status(cluster, CONFIG))
    told = [line.strip() for line in shown.splitlines() if line.startswith(("last backup", "proven restore"))]
    assert [line.split(maxsplit=2)[2] for line in told] == ["5 h ago", "none that ended well"]


def leaves(name: str) -> Ill:
    return lambda cluster: cluster.thing("Pod", name)["metadata"].update(deletionTimestamp=NOW)


def left_the_file(cluster: RecordedCluster) -> None:
    pod = json.loads(json.dumps(cluster.thing("Pod", "default-1")))
    pod["metadata"] |= {"name": "default-2", "deletionTimestamp": NOW}
    cluster.objects.append(pod)


@pytest.mark.parametrize(
    ("make", "healthy", "told"),
    [
        (lambda _: None, True, ""),
        (left_the_file, True, ""),
        (leaves("health-watch"), True, ""),
        (leaves("login-0"), False, ""),
        (leaves("default-0"), False, "workers: 1 of 2 ready\n"),
    ],
    ids=["whole", "left the file", "replaced", "login leaves", "rolled"],
)
def test_workers_are_those_of_the_stack_file_that_do_not_leave(
    cluster: RecordedCluster, show: Show, make: Ill, healthy: bool, told: str
) -> None:
    make(cluster)
    found = read_status(cluster, CONFIG)
    assert found.healthy == healthy
    shown = show(found)
    assert told in shown
    assert ("workers:" in shown) == bool(told)


def test_an_address_is_the_load_balancer_s_where_there_is_one(cluster: RecordedCluster) -> None:
    for status, address in (({}, "10.0.0.7"), ({"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}, "192.0.2.7")):
        service = thing("Service", "login", spec={"clusterIP": "10.0.0.7"}, status=status)
        assert login_address(FakeKubectl(answers=[({"service"}, listed(service), "")]), "slurm") == address
        cluster.objects.append(service)
        assert read_status(cluster, CONFIG).login_address == address


def test_a_slurmctld_that_does_not_answer_and_one_without_nodes_are_told_apart(
    cluster: RecordedCluster, show: Show
) -> None:
    why = "slurm_load_node error: Socket timed out on send/recv operation"
    cluster.slurm["sinfo"] = (1, why)
    found = read_status(cluster, CONFIG)
    shown = show(found)
    logs = "see `kubectl --context test logs -n slurm controller-0 -c slurmctld`"
    assert f"slurmctld does not answer: {why}; {logs}" in shown
    assert "active (the one last taken)" in shown
    assert "accounting" not in shown
    assert found.slurmdbd_answers is None  # nobody can tell
    cluster.slurm["sinfo"] = (0, [])
    assert "slurmctld has no nodes" in show(read_status(cluster, CONFIG))


def test_a_slurmdbd_and_a_queue_that_are_silent_are_said_and_the_rest_is_shown(
    cluster: RecordedCluster, show: Show
) -> None:
    cluster.slurm.update(database=(124, ""), jobs=(124, ""))
    found = read_status(cluster, CONFIG)
    assert (found.slurmdbd_answers, found.healthy, len(found.nodes)) == (False, False, 2)
    assert (found.queue, found.unread) == (None, {"jobs": "no answer within 8 s"})
    assert "kubectl --context test logs -n slurm slurmdbd-0" in show(found)


def test_nodes_are_counted_by_pool_and_those_that_take_no_jobs_are_listed_with_the_reason(
    cluster: RecordedCluster, show: Show
) -> None:
    when = (datetime.now(UTC) - timedelta(hours=3, minutes=30)).strftime("%Y-%m-%dT%H:%M:%S")
    draining = node("default-0", "draining", when, "root", "disk|full")
    old = node("old-0", "down*", when, "slurm", "x")
    cluster.slurm["sinfo"] = (0, [old, node("default-1", "mixed"), draining, draining])
    found = read_status(cluster, CONFIG)
    assert found.pools == (
        Pool(name="default", wanted=2, ready=2, allocated=1, drained=1),
        Pool(name="old", wanted=0, ready=0, down=1),
    )
    shown = show(found)
    assert "default-0 draining by root 3 h ago: disk|full" in shown
    assert "default-1" not in shown


def test_the_queue_has_its_reasons(cluster: RecordedCluster, show: Show) -> None:
    for id_, state, reason in (
        ("1", "RUNNING", "None"), ("2_[1-3%1]", "PENDING", "Resources"), ("3", "PENDING", "JobHeldUser"),
        ("5", "COMPLETING", "None"),
    ):  # fmt: skip
        cluster.job(id_, reason, state=state)
    found = read_status(cluster, CONFIG)
    assert found.queue == Queue(running=1, pending=4, other=1, reasons={"Resources": 3, "JobHeldUser": 1})
    assert "1 running, 4 pending, 1 ending or suspended; waiting for: 3 Resources" in show(found)


HOMES = f"server:/homes {8 * 2**20} {6 * 2**20} {2 * 2**20} 75% /shared/home"


@pytest.mark.parametrize(
    ("jail", "told"),
    [
        ((JAIL, ""), "mounted in login-0, 0.0 of 0.0 GiB free (40 %), populated with version 24.11-c1500fd2bc8b"),
        ((JAIL.replace(" /jail", " /"), ""), "not mounted in login-0"),
        ((JAIL.partition("{")[0], ""), "not populated"),
        ((JAIL.replace("/jail\n\n", f"/jail\n{HOMES}\n\n"), ""), "d2bc8b, homes: 2.0 of 8.0 GiB free (25 %)"),
        (("", 'pods "login-0" is forbidden: no'), "could not read  jail: not allowed to run commands in login-0"),
    ],
    ids=["well", "not mounted", "empty", "homes apart", "no right"],
)
def test_the_jail_is_shown_as_a_pod_sees_it(
    cluster: RecordedCluster, show: Show, jail: tuple[str, str], told: str
) -> None:
    assert told in show(read_status(replace(cluster, jail=jail), CONFIG))


def test_what_these_credentials_may_not_read_is_said_and_the_rest_is_shown(
    cluster: RecordedCluster, show: Show
) -> None:
    forbidden = 'Error from server (Forbidden): pods is forbidden: User "x" cannot list resource "pods"'
    cluster.refused.update({"Pod": forbidden, "exec": forbidden})
    found = read_status(cluster, CONFIG)
    assert (found.unread["pods"], found.healthy) == ("not allowed", False)
    assert "workloads" not in found.unread
    shown = show(found)
    assert "slurmctld does not answer: not allowed to run commands in its pod" in shown
    assert "could not read  pods: not allowed" in shown
    assert "configuration   unknown" in shown


def test_no_text_of_a_node_is_taken_for_another_node_or_moves_the_cursor(cluster: RecordedCluster, show: Show) -> None:
    """Root in the jail may set a reason: it hid a drained node behind an idle one."""
    hostile = node("default-0", "drained", by="root", reason="[red]bad[/b]\ndefault-7|idle")
    cluster.slurm["sinfo"] = (0, [hostile, node("default-\x1b[2J1", "idle\x07")])
    found = read_status(cluster, CONFIG)
    assert [(one.name, one.state) for one in found.nodes] == [("default- [2J1", "idle "), ("default-0", "drained")]
    shown = show(found)
    assert "\x1b" not in shown
    assert "[red]bad[/b] default-7|idle" in shown
    assert listed_node({**hostile, "Extra": "[" * 100_000}).confinement == ""


@pytest.mark.parametrize(("up", "healthy"), [(0, False), (2, True)])
def test_an_elastic_pool_is_whole_with_its_least_nodes_and_with_any_more(
    cluster: RecordedCluster, up: int, healthy: bool
) -> None:
    """With one that has just been asked for, and has no machine yet."""
    config = load_config(with_change(stacks.dev(), "worker_nodes.default.size", {"min": 1, "max": 4}))
    coming = json.loads(json.dumps(cluster.thing("Pod", "default-1")))
    coming["metadata"]["name"], coming["status"] = "default-3", {"phase": "Pending"}
    for number in range(up, 2):
        cluster.remove("Pod", f"default-{number}")
    cluster.objects.append(coming)
    cluster.remove("StatefulSet", "default")
    cluster.slurm["sinfo"] = (0, [node(f"default-{number}") for number in range(4)])
    cluster.slurm["configuration"] = (1, "")
    found = read_status(cluster, config)
    assert found.healthy == healthy
    assert (found.workers.ready, found.workers.wanted) == (min(up, 1), 1), "more stand in for none of another pool"


@pytest.mark.parametrize(
    ("seen", "counts"),
    [
        ({}, False),
        ({"state": "idle*"}, True),
        ({"state": "down*", "by": "slurm", "reason": "Not responding"}, True),
        ({"state": "down", "by": "root", "reason": "slurmstack/health: gpu"}, True),
        ({"state": "down*", "by": "root", "reason": "a fan"}, False),
    ],
)
def test_a_new_pod_whose_node_slurm_does_not_have_is_told_as_it_takes_room_from_the_others(
    cluster: RecordedCluster, show: Show, seen: dict[str, str], counts: bool
) -> None:
    """`elastic` goes on by the same: what an administrator has set down does not count."""
    cluster.thing("StatefulSet", "default")["status"]["updateRevision"] = "new"
    cluster.thing("Pod", "default-0")["metadata"]["labels"]["controller-revision-hash"] = "new"
    cluster.slurm["sinfo"] = (0, [node("default-0", **seen), node("default-1")])
    shown = show(read_status(cluster, CONFIG))
    assert "new pods for pool default: 1 of 2 nodes wait until they are idle" in shown
    assert ("for new pods that are not ready, or not in Slurm: default-0" in shown) == counts
