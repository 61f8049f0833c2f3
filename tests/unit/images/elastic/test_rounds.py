"""One look after the other: refused pods are asked for less and less often, and records that stay are no hurry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from images.elastic.rounds import QUICK_SECONDS, USUAL_SECONDS, Rounds
from images.elastic.view import Node, Pool

POOL = Pool(name="gpu", least=0, most=1, conf="CPUs=2", resume_timeout=60.0, digest="new", uid="u")
COMING = Node(name="gpu-0", states=frozenset({"MIXED", "CLOUD", "POWERING_UP"}), mark=POOL.mark)
OLD = Node(name="gpu-0", states=frozenset({"IDLE", "CLOUD", "POWERED_DOWN"}), mark="old")


@dataclass
class Slurm:
    """Nodes that stay as they are."""

    node: Node
    deleted: int = 0

    def read(self) -> dict[str, Node]:
        return {"gpu-0": self.node}

    def starting(self) -> dict[str, frozenset[str]]:
        return {}

    def delete(self, _: Iterable[str]) -> None:
        self.deleted += 1


@dataclass
class Kubernetes:
    """Refuses pods as long as it says why."""

    clock: list[float]
    why: str = "exceeded quota"
    asked_at: list[float] = field(default_factory=list)

    def start(self, _pool: Pool, _names: Iterable[str]) -> str:
        self.asked_at.append(self.clock[0])
        return self.why

    def end(self, _: Iterable[object]) -> None:
        """Nothing is there."""


def rounds_of(slurm: Slurm, kubernetes: Kubernetes, log: list[str]) -> Rounds:
    given: dict[str, Any] = {"nodes": slurm, "pods": kubernetes}
    return Rounds(
        **given, pools=lambda: {"gpu": POOL}, there=dict, synced=lambda: True, log=log.append,
        now=lambda: kubernetes.clock[0],
    )  # fmt: skip


def test_pods_that_are_refused_are_asked_for_less_and_less_often_and_told_of_once() -> None:
    log: list[str] = []
    kubernetes = Kubernetes(clock=[1000.0])
    rounds = rounds_of(Slurm(COMING), kubernetes, log)
    for _ in range(400):
        rounds.look()
        kubernetes.clock[0] += 0.25
    between = [after - before for before, after in zip(kubernetes.asked_at, kubernetes.asked_at[1:], strict=False)]
    assert between == [1, 2, 4, 8, 16, 30, 30]
    assert log == ["exceeded quota"]
    kubernetes.why = ""
    kubernetes.clock[0] += 30
    rounds.look()
    kubernetes.clock[0] += 0.25
    rounds.look()
    assert kubernetes.asked_at[-1] - kubernetes.asked_at[-2] == 0.25, "what was refused no more is not held back"


def test_a_record_that_slurm_does_not_let_go_is_no_reason_to_hurry() -> None:
    slurm = Slurm(OLD)
    rounds = rounds_of(slurm, Kubernetes(clock=[0.0]), [])
    assert (rounds.look(), slurm.deleted) == (USUAL_SECONDS, 1)
    slurm.node = COMING
    assert rounds.look() < 1
    assert QUICK_SECONDS < 1
