"""The machines, as Kubernetes sees them: cordoned, not ready, gone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from images.health.slurm import Record
from images.health.watch import machines
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
    judge,
    machine_of,
    place_of,
    seconds_of,
    takes_connection,
)
from images.health.watch.view import Finding
from tests.unit.images.health.tables import Like, table, words
from tests.unit.images.health.watch.followed import Followed
from tests.unit.images.health.watch.views import NOW

RECORDS = [Record(name=name, states=frozenset({"IDLE"}), address=f"10.0.0.{name[-1]}") for name in ("w-0", "w-1")]
READY = Machine(ready="True", conditions={})
SILENT = Machine(ready="Unknown", why="kubelet stopped posting", conditions={})
CORDONED = replace(READY, cordoned=True)
RELEASED = replace(CORDONED, released_for="health/gpu-xid", released_by="ns/w-0")
UNWANTED = replace(READY, conditions={"Maintenance": "on Tuesday"})
LAST = MISSING_ROUNDS - 1
NO_PLACE = Place(node="")


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
    """Two workers, each on a machine of its own; Maintenance drains."""

    def __init__(self, m_0: Machine | None = READY, *, answers: bool = True) -> None:
        self.pods = Followed({"w-0": Place(node="m-0", uid="u0"), "w-1": Place(node="m-1")})
        self.nodes = Followed({"m-0": m_0, "m-1": READY} if m_0 else {"m-1": READY})
        self.answers = answers
        self.pool = Queue()
        self.probed: list[tuple[str, int]] = []
        self.machines = Machines(
            pods=self.pods,  # type: ignore[arg-type]
            nodes=self.nodes,  # type: ignore[arg-type]
            drain_conditions=frozenset({"Maintenance"}),
            namespace="ns",
            probe=self._probe,
            pool=self.pool,
        )

    def _probe(self, address: str, port: int) -> bool:
        self.probed.append((address, port))
        return self.answers

    def change(
        self,
        *,
        m_0: Machine | None = None,
        gone: bool = False,
        at: Place | None = None,
        podless: bool = False,
        answers: bool | None = None,
        synced: bool | None = None,
        m_9: Machine | None = None,
    ) -> None:
        """What happens between two rounds."""
        self.nodes.copy |= {name: new for name, new in (("m-0", m_0), ("m-9", m_9)) if new}
        self.pods.copy |= {"w-0": at} if at else {}
        if gone:
            del self.nodes.copy["m-0"]
        if podless:
            del self.pods.copy["w-0"]
        self.answers = self.answers if answers is None else answers
        self.nodes.synced = self.nodes.synced if synced is None else synced

    def look(self, times: int = 1) -> Finding:
        """What is found about w-0 in the last of some rounds."""
        for _ in range(times):
            findings = self.machines.findings(RECORDS, NOW)
            assert set(findings) == {"w-0", "w-1"}
            self.pool.run()
        return findings["w-0"]


def said(finding: Finding) -> str:
    """What is found, and how: somebody wants it so, or the machine is lost."""
    return words(finding.result) + " (declared)" * finding.declared + " (lost)" * finding.lost


@table(
    "machine, expected",
    {
        "ready": (READY, "ok"),
        "cordoned": (CORDONED, "fail [node]: machine m-0 is cordoned (declared)"),
        "a condition that drains": (UNWANTED, "fail [node]: ...Maintenance... (declared)"),
        "a condition that the site does not name": (replace(READY, conditions={"Other": ""}), "ok"),
        "a condition that a watcher has set": (replace(READY, conditions={"Maintenance": "slurmstack: w-0: x"}), "ok"),
        "a condition that only looks so": (replace(READY, conditions={"Maintenance": "slurmstacks: w-0"}), "fail ..."),
        "released by us": (RELEASED, "ok"),
        "released by another": (replace(RELEASED, released_by="other/w-0"), "fail ... (declared)"),
        "released by nobody": (replace(RELEASED, released_by=""), "fail ... (declared)"),
        "released by no name": (replace(RELEASED, released_by="/"), "fail ... (declared)"),
    },
)
def test_a_machine_that_answers(machine: Machine, expected: str) -> None:
    cluster = Cluster(machine)
    assert said(cluster.look()) == Like(expected)
    assert cluster.probed == [], "its slurmd is not bothered"


def test_a_silent_slurmd_alone_is_no_lost_machine_and_a_cordon_is_ours_only_where_we_are_known() -> None:
    assert judge("m-0", READY, NOW, silent=True, drain_conditions=frozenset()).result.status == "ok"
    assert judge("m-0", RELEASED, NOW, silent=False, drain_conditions=frozenset()).result.status == "fail"


@table(
    "machine, since",
    {
        "a known time": (replace(UNWANTED, since={"Maintenance": NOW - 9}), NOW - 9),
        "as good as for ever": (UNWANTED, 0.0),
        "a cordon counts first": (replace(UNWANTED, cordoned=True), None),
    },
)
def test_since_when_the_condition_is_true(machine: Machine, since: float | None) -> None:
    assert Cluster(machine).look().unwanted_since == since


NOT_READY = Machine(ready="False", why="runtime is down", conditions={})
UNHEARD = "not checked: ..."
LOST = "fail ... (lost)"
ALIVE = "fail [node]: machine m-0 is not ready: kubelet stopped posting"
DEAD = "fail [node]: ...slurmd does not answer... (lost)"


@table(
    "first, answers, story",
    {
        "not ready is not lost": (
            NOT_READY,
            False,
            [({}, 9, "fail [node]: machine m-0 is not ready: runtime is down")],
        ),
        "a machine is lost only when its slurmd is silent too": (
            SILENT,
            True,
            [({}, 9, ALIVE), ({"answers": False}, 1, ALIVE), ({}, 1, DEAD), ({"answers": True}, 2, ALIVE)],
        ),
        "a released machine may be lost as well": (replace(RELEASED, ready="Unknown"), False, [({}, 2, LOST)]),
        "what was tried before it was well counts no more": (
            SILENT,
            False,
            [({}, 2, DEAD), ({"m_0": READY}, 1, "ok"), ({"m_0": SILENT}, 1, ALIVE)],
        ),
        "the machine before does not count for the next": (
            None,
            False,
            [
                ({}, MISSING_ROUNDS, LOST),
                ({"at": Place(node="m-9")}, 1, UNHEARD),  # of which nothing is heard yet
                ({"m_9": SILENT}, 2, LOST),
                ({"at": Place(node="m-0"), "m_0": SILENT}, 1, ALIVE),
            ],
        ),
        "a machine that was not heard of yet is unknown at first": (
            None,
            True,
            [({}, LAST, UNHEARD), ({"m_0": READY}, 1, "ok"), ({"gone": True}, LAST, UNHEARD), ({}, 1, "fail ...")],
        ),
        "a machine that vanished with its pod is still known to be gone": (
            READY,
            False,
            [
                ({}, 1, "ok"),
                ({"gone": True, "at": NO_PLACE}, MISSING_ROUNDS, LOST),
                ({"podless": True}, 1, LOST),
                ({"at": Place(node="m-1")}, 1, "ok"),
            ],
        ),
        "a node whose pod was never seen is not ours": (READY, False, [({"podless": True}, 9, UNHEARD)]),
        "while the API server is away no time counts": (
            SILENT,
            False,
            [({}, 1, ALIVE), ({"synced": False}, 1, UNHEARD), ({"synced": True}, 1, ALIVE)],
        ),
        "a machine is missing anew after that": (
            None,
            True,
            [({}, LAST, UNHEARD), ({"synced": False}, 1, UNHEARD), ({"synced": True}, 1, UNHEARD)],
        ),
    },
)
def test_rounds_in_a_row(first: Machine | None, answers: bool, story: list[tuple[dict[str, Any], int, str]]) -> None:
    cluster = Cluster(first, answers=answers)
    for number, (change, rounds, expected) in enumerate(story):
        cluster.change(**change)
        found = said(cluster.look(times=rounds))
        assert found == Like(expected), number
        assert found.endswith("(lost)") == expected.endswith("(lost)"), number
    assert set(cluster.probed) <= {("10.0.0.0", 6818)}


def test_a_slurmd_that_takes_its_time_to_be_silent_holds_up_no_round() -> None:
    cluster = Cluster(SILENT, answers=False)
    for _ in range(5):
        assert not cluster.machines.findings(RECORDS, NOW)["w-0"].lost
    assert len(cluster.pool.waiting) == 1


def test_many_lost_machines_wait_for_their_turn_and_all_get_one() -> None:
    cluster = Cluster(SILENT, answers=False)
    many = [Record(name=f"w-{number}", states=frozenset({"IDLE"})) for number in range(100)]
    cluster.pods.copy.update({record.name: Place(node="m-0") for record in many})
    for _ in range(9):
        lost = sum(finding.lost for finding in cluster.machines.findings(many, NOW).values())
        assert len(cluster.pool.waiting) <= 32
        cluster.pool.run()
    assert lost == 100


# ---------------------------------------------------------------- what Kubernetes says


def node(*conditions: Mapping[str, str], **spec: object) -> dict[str, object]:
    return {"metadata": {"name": "m-0"}, "spec": spec, "status": {"conditions": list(conditions)}}


def test_a_node_object_is_read() -> None:
    told = {"status": "True", "reason": "HardwareFault", "message": "w-0: gpu-xid"}
    soon = {"type": "Maintenance", "status": "True", "message": "soon", "lastTransitionTime": "2026-11-18T11:06:40Z"}
    given = node(
        {"type": "Ready", "status": "True", "message": "kubelet is posting"},
        {"type": "MemoryPressure", "status": "False"},
        soon,
        {"type": CONDITION, **told},
        unschedulable=True,
    )
    annotations = {RELEASED_FOR: "health/gpu-xid", RELEASED_BY: "ns/w-0", KEEP: "mine"}
    assert machine_of({**given, "metadata": {"resourceVersion": "42", "annotations": annotations}}) == Machine(
        ready="True",
        why="kubelet is posting",
        cordoned=True,
        conditions={"Maintenance": "soon"},
        told=Told(**told),
        since={"Maintenance": NOW},
        released_for="health/gpu-xid",
        released_by="ns/w-0",
        keep="mine",
        version="42",
    )


@pytest.mark.parametrize("text", [None, "", "soon", 17])
def test_a_time_that_is_none_is_unknown(text: object) -> None:
    assert seconds_of(text) is None


@pytest.mark.parametrize("given", [{"metadata": {"name": "m"}}, node(), node({"type": "Ready", "status": "Unknown"})])
def test_a_machine_that_says_nothing_is_not_taken_for_ready(given: dict[str, object]) -> None:
    assert (machine_of(given).ready, machine_of(given).cordoned) == ("Unknown", False)


def test_a_pod_is_read() -> None:
    assert place_of({"metadata": {"uid": "u"}, "spec": {"nodeName": "m-0"}}) == Place(node="m-0", uid="u")
    assert place_of({"metadata": {}}) == NO_PLACE
    leaving = {"uid": "u", "deletionTimestamp": "2026-11-18T11:06:41Z"}
    started = {"startTime": "2026-11-18T11:06:40Z"}
    found = place_of({"metadata": leaving, "spec": {"nodeName": "m-0"}, "status": started})
    assert found == Place(node="m-0", uid="u", started=NOW, leaving=True)


def test_a_connection_is_tried_for_real() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert takes_connection("127.0.0.1", port)
    assert not takes_connection("127.0.0.1", port)
    assert not takes_connection("." * 300, 6818)


@pytest.mark.parametrize("answers", [True, False])
def test_slurmd_is_silent_only_after_some_tries(monkeypatch: pytest.MonkeyPatch, answers: bool) -> None:
    outcomes = [False] * (TRIES - 1) + [answers]
    monkeypatch.setattr(machines, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(machines, "takes_connection", lambda *_: outcomes.pop(0))
    assert machines.answers("10.0.0.0", 6818) is answers
    assert outcomes == []
