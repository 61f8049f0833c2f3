"""The machines, as Kubernetes sees them: cordoned, not ready, gone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from images.health.contract import Status
from images.health.watch import machines
from images.health.watch.decide import Finding
from images.health.watch.machines import (
    CONDITION,
    KEEP,
    MISSING_ROUNDS,
    RELEASED_BY,
    RELEASED_FOR,
    TRIES,
    Machine,
    Machines,
    Place,
    Told,
    answers,
    judge,
    machine_of,
    place_of,
    seconds_of,
    takes_connection,
)
from images.health.watch.slurm import Record
from tests.unit.images.health.watch.followed import Followed
from tests.unit.images.health.watch.views import NOW

RECORDS = [Record(name=name, states=frozenset({"IDLE"}), address=f"10.0.0.{name[-1]}") for name in ("w-0", "w-1")]
READY = Machine(ready="True", conditions={})


class Queue(Executor):
    """Runs what it is given when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append(lambda: future.set_result(work(*arguments)))
        return future

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


class Cluster:
    """Two workers, each on a machine of its own."""

    def __init__(self, *, drain_conditions: frozenset[str] = frozenset()) -> None:
        self.pods = Followed({"w-0": Place(node="m-0", uid="u0"), "w-1": Place(node="m-1")})
        self.nodes = Followed({"m-0": READY, "m-1": READY})
        self.answers = True
        self.pool = Queue()
        self.probed: list[tuple[str, int]] = []
        self.machines = Machines(
            pods=self.pods,  # type: ignore[arg-type]
            nodes=self.nodes,  # type: ignore[arg-type]
            drain_conditions=drain_conditions,
            namespace="ns",
            probe=self._probe,
            pool=self.pool,
        )

    def _probe(self, address: str, port: int) -> bool:
        self.probed.append((address, port))
        return self.answers

    def look(self, times: int = 1) -> Finding:
        """What is found about w-0 in the last of some rounds."""
        for _ in range(times):
            findings = self.machines.findings(RECORDS, NOW)
            assert set(findings) == {"w-0", "w-1"}
            self.pool.run()
        return findings["w-0"]


def node(*conditions: Mapping[str, str], **spec: object) -> dict[str, object]:
    return {"metadata": {"name": "m-0"}, "spec": spec, "status": {"conditions": list(conditions)}}


def test_a_ready_machine_is_well_and_its_slurmd_is_not_bothered() -> None:
    cluster = Cluster()
    assert cluster.look().result.status is Status.OK
    assert cluster.probed == []


def test_a_silent_slurmd_alone_is_no_lost_machine() -> None:
    assert judge("m-0", READY, silent=True, drain_conditions=frozenset()).result.status is Status.OK


def test_a_cordoned_machine_fails_because_somebody_said_so() -> None:
    cluster = Cluster()
    cluster.nodes.copy["m-0"] = Machine(ready="True", cordoned=True, conditions={})
    finding = cluster.look()
    assert (finding.result.status, finding.declared, finding.lost) == (Status.FAIL, True, False)
    assert finding.result.message == "machine m-0 is cordoned"
    assert finding.result.fault == "node"


def test_a_condition_that_the_site_names_counts_and_another_does_not() -> None:
    conditions = {"MaintenanceScheduled": "on Tuesday", "Other": ""}
    for named, status in (("MaintenanceScheduled", Status.FAIL), ("DiskPressure", Status.OK)):
        cluster = Cluster(drain_conditions=frozenset({named}))
        cluster.nodes.copy["m-0"] = Machine(ready="True", conditions=conditions)
        finding = cluster.look()
        assert finding.result.status is status
        assert finding.declared is (status is Status.FAIL)


def test_since_when_the_condition_is_true_is_known_or_as_good_as_for_ever() -> None:
    for since, known in (({"Maintenance": NOW - 9}, NOW - 9), ({}, 0.0)):
        cluster = Cluster(drain_conditions=frozenset({"Maintenance"}))
        cluster.nodes.copy["m-0"] = Machine(ready="True", conditions={"Maintenance": ""}, since=since)
        assert cluster.look().unwanted_since == known
    cluster.nodes.copy["m-0"] = Machine(ready="True", conditions={"Maintenance": ""}, cordoned=True)
    assert cluster.look().unwanted_since is None


@pytest.mark.parametrize(
    ("by", "status"), [("ns/w-0", Status.OK), ("other/w-0", Status.FAIL), ("", Status.FAIL), ("/", Status.FAIL)]
)
def test_a_cordon_of_our_own_is_not_somebody_elses(by: str, status: Status) -> None:
    cluster = Cluster()
    released = Machine(ready="True", conditions={}, cordoned=True, released_for="health/gpu-xid", released_by=by)
    cluster.nodes.copy["m-0"] = released
    assert cluster.look().result.status is status
    nobody = judge("m-0", released, silent=False, drain_conditions=frozenset())
    assert nobody.result.status is Status.FAIL


def test_a_released_machine_that_is_not_ready_or_lost_is_still_so() -> None:
    cluster = Cluster()
    cluster.answers = False
    cluster.nodes.copy["m-0"] = Machine(
        ready="Unknown", conditions={}, cordoned=True, released_for="health/gpu-xid", released_by="ns/w-0"
    )
    assert cluster.look(times=2).lost


def test_a_condition_that_a_watcher_has_set_is_not_drained_for() -> None:
    for message, status in (("slurmstack: w-0: released", Status.OK), ("slurmstacks: w-0", Status.FAIL)):
        cluster = Cluster(drain_conditions=frozenset({"HardwareIssuesSuspected"}))
        cluster.nodes.copy["m-0"] = Machine(ready="True", conditions={"HardwareIssuesSuspected": message})
        assert cluster.look().result.status is status


def test_what_is_known_of_the_machine_before_does_not_count_for_the_next() -> None:
    cluster = Cluster()
    cluster.answers = False
    del cluster.nodes.copy["m-0"]
    assert cluster.look(times=MISSING_ROUNDS).lost
    cluster.pods.copy["w-0"] = Place(node="m-9")  # of which nothing is heard yet
    finding = cluster.look()
    assert (finding.result.status, finding.lost) == (Status.NOT_CHECKED, False)
    cluster.nodes.copy["m-9"] = Machine(ready="Unknown", conditions={})
    assert cluster.look(times=2).lost
    cluster.pods.copy["w-0"] = Place(node="m-8")
    cluster.nodes.copy["m-8"] = Machine(ready="Unknown", conditions={})
    assert not cluster.look().lost


def test_a_machine_that_is_not_ready_fails_and_nobody_said_so() -> None:
    cluster = Cluster()
    cluster.answers = False
    cluster.nodes.copy["m-0"] = Machine(ready="False", why="runtime is down", conditions={})
    finding = cluster.look(times=9)
    assert (finding.result.status, finding.declared, finding.lost) == (Status.FAIL, False, False)
    assert finding.result.message == "machine m-0 is not ready: runtime is down"


def test_a_machine_is_lost_only_when_its_slurmd_is_silent_too() -> None:
    cluster = Cluster()
    cluster.nodes.copy["m-0"] = Machine(ready="Unknown", why="kubelet stopped posting", conditions={})
    assert not cluster.look(times=9).lost
    cluster.answers = False
    assert not cluster.look().lost
    finding = cluster.look()
    assert finding.lost
    assert "slurmd does not answer" in finding.result.message
    assert set(cluster.probed) == {("10.0.0.0", 6818)}
    cluster.answers = True
    assert not cluster.look(times=2).lost


def test_a_slurmd_that_takes_its_time_to_be_silent_holds_up_no_round() -> None:
    cluster = Cluster()
    cluster.answers = False
    cluster.nodes.copy["m-0"] = Machine(ready="Unknown", conditions={})
    for _ in range(5):
        assert not cluster.machines.findings(RECORDS, NOW)["w-0"].lost
    assert len(cluster.pool.waiting) == 1


def test_what_was_tried_before_the_machine_was_well_again_counts_no_more() -> None:
    cluster = Cluster()
    cluster.answers = False
    cluster.nodes.copy["m-0"] = Machine(ready="Unknown", conditions={})
    assert cluster.look(times=2).lost
    cluster.nodes.copy["m-0"] = READY
    cluster.look()
    cluster.nodes.copy["m-0"] = Machine(ready="Unknown", conditions={})
    assert not cluster.look().lost


def test_many_lost_machines_wait_for_their_turn_and_all_get_one() -> None:
    cluster = Cluster()
    cluster.answers = False
    many = [Record(name=f"w-{number}", states=frozenset({"IDLE"})) for number in range(100)]
    cluster.pods.copy.update({record.name: Place(node="m-0") for record in many})
    cluster.nodes.copy["m-0"] = Machine(ready="Unknown", conditions={})
    lost = 0
    for _ in range(9):
        lost = sum(finding.lost for finding in cluster.machines.findings(many, NOW).values())
        assert len(cluster.pool.waiting) <= 32
        cluster.pool.run()
    assert lost == 100


def test_a_machine_that_was_not_heard_of_yet_is_unknown_at_first() -> None:
    cluster = Cluster()
    del cluster.nodes.copy["m-0"]
    assert cluster.look(times=MISSING_ROUNDS - 1).result.status is Status.NOT_CHECKED
    cluster.nodes.copy["m-0"] = READY
    assert cluster.look().result.status is Status.OK
    del cluster.nodes.copy["m-0"]
    assert cluster.look(times=MISSING_ROUNDS - 1).result.status is Status.NOT_CHECKED
    finding = cluster.look()
    assert (finding.result.status, finding.lost) == (Status.FAIL, False)


def test_a_machine_that_vanished_with_its_pod_is_still_known_to_be_gone() -> None:
    cluster = Cluster()
    cluster.look()
    del cluster.nodes.copy["m-0"]
    cluster.pods.copy["w-0"] = Place(node="")
    cluster.answers = False
    assert cluster.look(times=MISSING_ROUNDS).lost
    del cluster.pods.copy["w-0"]
    assert cluster.look().lost
    cluster.pods.copy["w-0"] = Place(node="m-1")
    assert cluster.look().result.status is Status.OK


def test_a_node_whose_pod_was_never_seen_is_not_ours() -> None:
    cluster = Cluster()
    del cluster.pods.copy["w-0"]
    cluster.answers = False
    assert cluster.look(times=9).result.status is Status.NOT_CHECKED


def test_without_the_api_server_nothing_is_known_and_no_time_of_it_counts() -> None:
    cluster = Cluster()
    cluster.answers = False
    cluster.nodes.copy["m-0"] = Machine(ready="Unknown", conditions={})
    cluster.look()
    cluster.nodes.synced = False
    finding = cluster.look()
    assert (finding.result.status, finding.lost) == (Status.NOT_CHECKED, False)
    cluster.nodes.synced = True
    assert not cluster.look().lost


def test_a_machine_is_missing_anew_after_the_api_server_was_away() -> None:
    cluster = Cluster()
    del cluster.nodes.copy["m-0"]
    cluster.look(times=MISSING_ROUNDS - 1)
    cluster.nodes.synced = False
    cluster.look()
    cluster.nodes.synced = True
    assert cluster.look().result.status is Status.NOT_CHECKED


def test_a_node_object_is_read() -> None:
    told = {"type": CONDITION, "status": "True", "reason": "HardwareFault", "message": "w-0: gpu-xid"}
    machine = machine_of(
        node(
            {"type": "Ready", "status": "True", "message": "kubelet is posting"},
            {"type": "MemoryPressure", "status": "False"},
            {"type": "Maintenance", "status": "True", "message": "soon"},
            told,
            unschedulable=True,
        )
    )
    assert machine == Machine(
        ready="True",
        why="kubelet is posting",
        cordoned=True,
        conditions={"Maintenance": "soon"},
        told=Told(status="True", reason="HardwareFault", message="w-0: gpu-xid"),
    )


def test_what_is_written_on_a_node_is_read() -> None:
    given = node({"type": "Maintenance", "status": "True", "lastTransitionTime": "2026-11-18T11:06:40Z"})
    annotations = {RELEASED_FOR: "health/gpu-xid", RELEASED_BY: "ns/w-0", KEEP: "mine"}
    machine = machine_of({**given, "metadata": {"resourceVersion": "42", "annotations": annotations}})
    assert (machine.released_for, machine.released_by, machine.keep) == ("health/gpu-xid", "ns/w-0", "mine")
    assert (machine.version, machine.since) == ("42", {"Maintenance": NOW})


@pytest.mark.parametrize("text", [None, "", "soon", 17])
def test_a_time_that_is_none_is_unknown(text: object) -> None:
    assert seconds_of(text) is None


@pytest.mark.parametrize("given", [{"metadata": {"name": "m"}}, node(), node({"type": "Ready", "status": "Unknown"})])
def test_a_machine_that_says_nothing_is_not_taken_for_ready(given: dict[str, object]) -> None:
    assert machine_of(given).ready == "Unknown"
    assert not machine_of(given).cordoned


def test_a_pod_is_read() -> None:
    assert place_of({"metadata": {"uid": "u"}, "spec": {"nodeName": "m-0"}}) == Place(node="m-0", uid="u")
    assert place_of({"metadata": {}}) == Place(node="")
    leaving = {"uid": "u", "deletionTimestamp": "2026-11-18T11:06:41Z"}
    started = {"startTime": "2026-11-18T11:06:40Z"}
    assert place_of({"metadata": leaving, "spec": {"nodeName": "m-0"}, "status": started}) == Place(
        node="m-0", uid="u", started=NOW, leaving=True
    )


def test_a_connection_is_tried_for_real() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert takes_connection("127.0.0.1", port)
    assert not takes_connection("127.0.0.1", port)
    assert not takes_connection("." * 300, 6818)


def test_slurmd_is_silent_only_after_some_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [False] * (TRIES - 1) + [True]
    monkeypatch.setattr(machines, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(machines, "takes_connection", lambda *_: outcomes.pop(0))
    assert answers("10.0.0.0", 6818)
    outcomes = [False] * TRIES
    assert not answers("10.0.0.0", 6818)
    assert outcomes == []
