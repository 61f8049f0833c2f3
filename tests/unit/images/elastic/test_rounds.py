"""One look after the other: in which order things are done, and how often what does not succeed is tried again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from images.common.command import Result
from images.common.elastic.view import Pod, Pool, Window, marked
from images.common.kubernetes import KubeError
from images.common.slurm_node import STAYS_LEAVING
from images.elastic.nodes import Nodes
from images.elastic.pods import AT_ONCE, Pods
from images.elastic.rounds import GONE_SECONDS, STUCK_SECONDS, USUAL_SECONDS, Rounds
from tests.fakes.commands import FakeRunner

POOL = Pool(name="gpu", least=0, most=1, conf="CPUs=2", resume_timeout=60.0, digest="new", uid="u")
COMING = "MIXED+CLOUD+POWERING_UP"
OFF = "IDLE+CLOUD+POWERED_DOWN"
AWAITED = "ALLOCATED+CLOUD+POWERED_DOWN"


def node(name: str, states: str, *, mark: str = POOL.mark, reason: str = "") -> str:
    """A record, as scontrol prints it."""
    why = f" Reason={reason} [root@2026-01-01T00:00:00]" if reason else ""
    return f"NodeName={name} State={states} Weight=1{why} Extra={marked(mark)}"


@dataclass
class Kubernetes:
    """Refuses pods as long as it says why."""

    clock: list[float]
    """On which no hour is set back, as on that of the wall."""
    commands: list[str]
    why: str = ""
    asked_at: list[float] = field(default_factory=list)
    takes: float = 0.0
    """Seconds, for pods that end."""
    pods: dict[str, Pod] = field(default_factory=dict)

    def start(self, _pool: Pool, names: Iterable[str]) -> str:
        self.asked_at.append(self.clock[0])
        self.commands.append(f"pods of {', '.join(names)}")
        return self.why

    def end(self, pods: Iterable[Pod]) -> str:
        self.commands.append(f"end of {', '.join(pod.name for pod in pods)}")
        self.clock[0] += self.takes
        return "timed out" if self.takes else ""


class World:
    """A slurmctld with records, by number of the question; the last answer stays."""

    def __init__(self, *seen: Sequence[str], pool: Pool = POOL) -> None:
        self.seen = list(seen)
        self.runner = FakeRunner({"scontrol show nodes": self._show})
        self.log: list[str] = []
        self.kubernetes = Kubernetes([1000.0], self.runner.commands)
        given: dict[str, Any] = {"nodes": Nodes(self.log.append, self.runner), "pods": self.kubernetes}
        self.rounds = Rounds(
            **given, pools=lambda: {"gpu": pool}, there=lambda: self.kubernetes.pods, synced=lambda: True,
            log=self.log.append, now=lambda: 1e9 - self.kubernetes.clock[0], steady=lambda: self.kubernetes.clock[0],
        )  # fmt: skip

    def _show(self, _: Sequence[str]) -> Result:
        return Result(code=0, stdout="\n".join(self.seen.pop(0) if len(self.seen) > 1 else self.seen[0]))

    def done(self) -> list[str]:
        """What the latest look has changed, without `scontrol`."""
        self.runner.commands.clear()
        self.rounds.look()
        changes = [command for command in self.runner.commands if " show " not in command and "squeue" not in command]
        return [command.removeprefix("scontrol ") for command in changes]

    def looks(self, seconds: float, do: Callable[[], object]) -> None:
        """Four a second."""
        for _ in range(int(seconds * 4)):
            do()
            self.kubernetes.clock[0] += 0.25


def test_pods_that_are_refused_are_asked_for_less_and_less_often_and_told_of_once() -> None:
    """By a clock that nobody sets back."""
    world = World([node("gpu-0", COMING)])
    kubernetes = world.kubernetes
    kubernetes.why = "exceeded quota"
    world.looks(100, world.rounds.look)
    between = [after - before for before, after in zip(kubernetes.asked_at, kubernetes.asked_at[1:], strict=False)]
    assert between == [1, 2, 4, 8, 16, 30, 30]
    assert world.log == ["exceeded quota"]
    kubernetes.why = ""
    kubernetes.clock[0] += 30
    world.looks(0.5, world.rounds.look)
    assert kubernetes.asked_at[-1] - kubernetes.asked_at[-2] == 0.25, "what was refused no more is not held back"


def test_a_pod_is_given_up_when_it_has_been_missing_for_a_while_whatever_the_clock_on_the_wall_says() -> None:
    world = World([node("gpu-0", "MIXED+CLOUD")])
    changes: list[str] = []
    world.looks(GONE_SECONDS, lambda: changes.extend(world.done()))
    assert changes == []
    assert world.done() == ["update nodename=gpu-0 state=down reason=slurmstack/elastic: its pod is gone"]


ALWAYS = Window(name="now", days=frozenset(range(7)), begin=0, end=1440, least=0, most=1)
THREE = replace(POOL, most=3, windows=(ALWAYS,))


def test_nodes_are_held_back_before_pods_are_made_and_only_those_that_no_job_has_got_meanwhile() -> None:
    names = [f"gpu-{number}" for number in range(3)]
    before = [node(name, AWAITED if name == "gpu-0" else OFF) for name in names]
    meanwhile = [node(name, OFF if name == "gpu-2" else AWAITED) for name in names]
    world = World(before, meanwhile, pool=THREE)
    assert world.done() == [
        "update nodename=gpu-2 state=drain reason=slurmstack/elastic: held back in the window now UTC",
        "pods of gpu-0",
    ]


STUCK = f"update nodename=gpu-0 state=drain reason={STAYS_LEAVING}"


def test_a_node_whose_pod_does_not_go_is_held_back_until_it_has_gone() -> None:
    """The machine is dead, and Kubernetes waits for its kubelet to say that the pod has ended."""
    world = World([node("gpu-0", OFF)])
    world.kubernetes.pods = {"gpu-0": Pod(name="gpu-0", pool="gpu", digest="new", is_leaving=True)}
    world.looks(STUCK_SECONDS, lambda: world.done() == [] or pytest.fail("too early"))
    assert world.done() == [STUCK]

    held = World([node("gpu-0", f"{OFF}+DRAIN", reason=STAYS_LEAVING)])  # and a restart does not forget it
    held.kubernetes.pods = world.kubernetes.pods
    held.looks(2, lambda: held.done() == [] or pytest.fail("it is let go"))
    held.kubernetes.pods = {}
    assert held.done() == ["update nodename=gpu-0 state=resume"]


@pytest.mark.parametrize("came", [False, True])
def test_only_nodes_of_jobs_that_wait_are_given_back(came: bool) -> None:
    """When later ones of the pool do not come, those of a job that has had its own are idle, or others'."""
    coming = [node("gpu-0", "IDLE+CLOUD"), node("gpu-1", COMING)]
    there = [node("gpu-0", "IDLE+CLOUD"), node("gpu-1", "MIXED+CLOUD")]
    late = [node("gpu-0", "IDLE+CLOUD"), node("gpu-1", "DOWN+CLOUD+POWERED_DOWN", reason="ResumeTimeout reached")]
    world = World(coming, *([there] if came else []), late, pool=replace(POOL, most=2))
    world.runner.answers["squeue"] = Result(code=0, stdout="7 gpu-[0-1]\n")
    world.kubernetes.pods = {name: Pod(name=name, pool="gpu", digest="new") for name in ("gpu-0", "gpu-1")}
    for _ in range(2 if came else 1):
        world.rounds.look()
    given_back = "update nodename=gpu-0 state=power_down reason=slurmstack/elastic: others of its job did not come"
    assert (given_back in world.done()) is not came


def test_no_record_is_made_of_a_pool_that_slurmctld_does_not_know() -> None:
    """The configuration agent would delete it: its configuration was rejected, or comes in a moment."""
    world = World([], pool=POOL)
    world.runner.answers["scontrol show partition elastic-gpu"] = Result(code=1)
    world.looks(10, lambda: world.done() == [] or pytest.fail("it is made"))
    assert len(world.log) == 1
    assert world.rounds.look() == USUAL_SECONDS
    world.runner.answers.clear()
    world.runner.answers["scontrol show nodes"] = Result(code=0)
    world.kubernetes.clock[0] += 30
    assert world.done()[0].startswith("create nodename=gpu-0")


class Hung:
    """A Kubernetes API that does not answer, or refuses."""

    def __init__(self, status: int | None) -> None:
        self.status, self.asked = status, 0

    def path(self, kind: str) -> str:
        return kind

    def send(self, *_: str | Mapping[str, Any]) -> None:
        self.asked += 1
        raise KubeError("timed out", self.status)


def test_where_the_api_server_does_not_answer_no_more_pods_are_ended() -> None:
    asked, said = {}, list[str]()
    for status in (None, 403):
        api: Any = Hung(status)
        Pods(api, said.append).end(Pod(name=f"gpu-{number}", pool="gpu") for number in range(100))
        asked[status] = api.asked
    assert asked[None] <= AT_ONCE
    assert asked[403] == 100
    assert len(said) == 2 + 100, "who has asked tells of the silence"


def test_only_some_nodes_are_made_anew_at_once() -> None:
    world = World([node(f"gpu-{number}", "IDLE+CLOUD") for number in range(2)], pool=replace(POOL, most=2))
    world.kubernetes.pods = {
        f"gpu-{number}": Pod(name=f"gpu-{number}", pool="gpu", digest="old") for number in range(2)
    }
    assert world.done() == ["update nodename=gpu-0 state=power_down_asap reason=slurmstack/elastic: gets a new pod"]
