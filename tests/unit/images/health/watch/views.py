"""Nodes for the tests of the watcher, what is decided about them, and what happens one after another, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from images.common.health.contract import FaultClass, Result, Status
from images.common.health.report import Finding, Report, encode
from images.common.health.slurm import Slurm
from images.common.kubernetes import Follower
from images.health.watch.decide import Decision, Limit, NodeView, Policy, decide
from images.health.watch.machines import Machines
from images.health.watch.release import Releaser
from images.health.watch.watcher import Watcher
from tests.fakes.slurmctld import FakeNode, FakeSlurmctld

NOW = 1_795_000_000.0
"""Seconds since 1970."""


def failed(message: str = "broken", fault: FaultClass | None = "node") -> Result:
    return Result(status=Status.FAIL, message=message, fault=fault)


OK = Result(status=Status.OK)
WARN = Result(status=Status.WARN, message="not good", fault="node")
UNKNOWN = Result(status=Status.NOT_CHECKED, message="no tool")


def found(result: Result, *, ago: float = 1.0) -> Finding:
    """A finding that is some seconds old."""
    return Finding(result=result, at=NOW - ago)


def view(
    name: str = "w-0", *states: str, reason: str = "", drained_ago: float = 60.0, **findings: Result | Finding
) -> NodeView:
    """A node; idle unless said otherwise. Names of checks with `_` for `-`."""
    return NodeView(
        name=name,
        states=frozenset({*(states or ("IDLE",)), "DYNAMIC_NORM"}),
        reason=reason,
        reason_at=NOW - drained_ago if reason else None,
        findings={
            check.replace("_", "-"): finding if isinstance(finding, Finding) else found(finding)
            for check, finding in findings.items()
        },
    )


def policy(
    max_drained: str = "100",
    *,
    report_only: frozenset[str] = frozenset(),
    requeue_after: float | None = None,
    frees_broken: bool = False,
) -> Policy:
    return Policy(
        max_drained=Limit.parse(max_drained),
        report_only=report_only,
        requeue_after=requeue_after,
        frees_broken=frees_broken,
    )


SPARE = [view(f"spare-{number}") for number in range(3)]
"""Well, so that the node under test is not the last one."""

OURS = "health/disks [node]: /jail 97 % used"


def deciding(*nodes: NodeView, by: Policy | None = None) -> Decision:
    return decide([*nodes, *SPARE], by or policy(), NOW)


def done(decision: Decision) -> list[str]:
    """What is done, and to whom."""
    return [f"{action.kind.value} {action.node.name}: {action.reason}" for action in decision.actions]


def drained(*states: str, reason: str = OURS, ago: float = 400.0, **findings: Result | Finding) -> NodeView:
    """A node that we have drained, for its disks unless said otherwise."""
    return view("w-0", *(states or ("IDLE",)), "DRAIN", reason=reason, drained_ago=ago, **findings)


def faults(count: int) -> list[NodeView]:
    """Each has another one: what many have at once drains nothing."""
    failures: list[dict[str, Any]] = [{f"check_{number}": failed("4 s to sync")} for number in range(count)]
    return [view(f"w-{number:02}", **failure) for number, failure in enumerate(failures)]


class Watched:
    """Four nodes in a Slurm, their clock, and a watcher."""

    def __init__(self) -> None:
        self.time = NOW
        self.slurmctld = FakeSlurmctld(self.wall, {f"w-{number}": FakeNode(states={"IDLE"}) for number in range(4)})
        self.nodes = self.slurmctld.nodes
        self.log: list[str] = []
        self.happens: dict[str, Callable[[], object]] = {}

    def wall(self) -> float:
        """The clock."""
        return self.time

    def watch(self, by: Policy, machines: Machines, releaser: Releaser | None = None) -> None:
        """With a new watcher."""
        slurm = Slurm(runner=self.slurmctld.runner)
        self.watcher = Watcher(
            slurm=slurm, policy=by, log=self.log.append, machines=machines, releaser=releaser, wall=self.wall
        )

    def report(self, name: str, *, ahead: float = 0.0, **results: Result) -> None:
        """A node says how it is."""
        found = {check.replace("_", "-"): result for check, result in results.items()}
        self.nodes[name].comment = encode(Report(at=int(self.time + ahead), results=found))

    def round(self, later: float = 2.0) -> None:
        """One, after a while."""
        self.time += later
        self.watcher.round()

    def play(self, story: str) -> None:
        """Let a story happen: `break; round; 600 s; 20 rounds`.

        `round` is one after the usual while, `600 s` one after so long; other words are the names of what happens.
        """
        for word in story.split("; "):
            number, _, unit = word.rpartition(" ")
            if unit == "s":
                self.round(float(number))
            elif unit in {"round", "rounds"}:
                for _ in range(int(number or 1)):
                    self.round()
            else:
                self.happens[word]()

    def drained(self) -> list[str]:
        """Names of the nodes."""
        return [name for name, node in self.nodes.items() if "DRAIN" in node.states]


class Followed(Follower[Any]):
    """A follower whose copy the test sets, or gives as it is then."""

    def __init__(self, given: dict[str, Any] | Callable[[], dict[str, Any]]) -> None:
        self.synced = True
        self.copy = given if isinstance(given, dict) else {}
        self.values = given if callable(given) else lambda: dict(self.copy)  # type: ignore[method-assign]
