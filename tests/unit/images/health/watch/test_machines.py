"""The machines, as Kubernetes sees them: cordoned, not ready, gone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from images.common.health.report import Finding
from images.common.health.slurm import Record
from images.health.watch import machines
from images.health.watch.machines import MISSING_ROUNDS, TRIES, Machine, Machines, Place, machine_of, takes_connection
from tests.unit.images.health.tables import Like, table, words
from tests.unit.images.health.watch.release_cluster import Followed
from tests.unit.images.health.watch.views import NOW

RECORDS = [Record(name=name, states=frozenset({"IDLE"}), address=f"10.0.0.{name[-1]}") for name in ("w-0", "w-1")]
READY = Machine(ready="True", conditions={})
SILENT = Machine(ready="Unknown", why="kubelet stopped posting", conditions={})
CORDONED = replace(READY, cordoned=True)
RELEASED = replace(CORDONED, released_for="health/gpu-xid")
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
            pods=self.pods,
            nodes=self.nodes,
            drain_conditions=frozenset({"Maintenance"}),
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
        "released for replacement": (RELEASED, "fail [node]: machine m-0 is released for health/gpu-xid (declared)"),
        "released and uncordoned": (replace(RELEASED, cordoned=False), "ok"),
    },
)
def test_a_machine_that_answers(machine: Machine, expected: str) -> None:
    cluster = Cluster(machine)
    assert said(cluster.look()) == Like(expected)
    assert cluster.probed == [], "its slurmd is not bothered"


def test_since_when_the_condition_is_true() -> None:
    known = replace(UNWANTED, since={"Maintenance": NOW - 9})
    assert Cluster(known).look().unwanted_since == NOW - 9
    assert Cluster(UNWANTED).look().unwanted_since == 0.0, "as good as for ever"
    assert Cluster(replace(known, cordoned=True)).look().unwanted_since is None, "a cordon counts first"
    assert Cluster(RELEASED).look().unwanted_since == 0.0, "no person has said so: the limit holds"


UNHEARD = "not checked: ..."
LOST = "fail ... (lost)"
ALIVE = "fail [node]: machine m-0 is not ready: kubelet stopped posting"
DEAD = "fail [node]: ...slurmd does not answer... (lost)"


@table(
    "first, answers, story",
    {
        "a machine is lost only when its slurmd is silent too": (
            SILENT,
            True,
            [({}, 9, ALIVE), ({"answers": False}, 1, ALIVE), ({}, 1, DEAD), ({"answers": True}, 2, ALIVE)],
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


# ---------------------------------------------------------------- what Kubernetes says


def node(*conditions: Mapping[str, str], **spec: object) -> dict[str, object]:
    return {"metadata": {"name": "m-0"}, "spec": spec, "status": {"conditions": list(conditions)}}


def test_a_machine_that_says_nothing_is_not_taken_for_ready() -> None:
    for given in ({"metadata": {"name": "m"}}, node(), node({"type": "Ready", "status": "Unknown"})):
        assert (machine_of(given).ready, machine_of(given).cordoned) == ("Unknown", False)


def test_a_connection_is_tried_for_real() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert takes_connection("127.0.0.1", port)
    assert not takes_connection("127.0.0.1", port)
    assert not takes_connection("." * 300, 6818)


def test_slurmd_is_silent_only_after_some_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "PAUSE_SECONDS", 0.0)
    for answers in (True, False):
        outcomes = [False] * (TRIES - 1) + [answers]
        monkeypatch.setattr(machines, "takes_connection", lambda *_, outcomes=outcomes: outcomes.pop(0))
        assert machines.answers("10.0.0.0", 6818) is answers
        assert outcomes == []
