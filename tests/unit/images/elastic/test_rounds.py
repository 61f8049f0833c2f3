"""One look after the other: in which order things are done, what is left alone, and how often is tried again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import Mock

import pytest

from images.common.command import Result
from images.common.kubernetes import KubeError
from images.common.slurm_node import ROLLS, STAYS_LEAVING, ControllerUnreachableError
from images.common.slurm_records import MARK
from images.elastic.decide import LEAVES
from images.elastic.nodes import AT_ONCE, Nodes, Pod, Pods, Pool
from images.elastic.program import (
    QUICK_SECONDS,
    ROLLING_SECONDS,
    USUAL_SECONDS,
    Ready,
    Rounds,
)
from images.elastic.rolls import FixedPool
from tests.fakes.commands import FakeRunner

POOL = Pool(name="gpu", least=0, most=1, conf="CPUs=2", mark="now", digest="new", uid="u")
COMING = "MIXED+CLOUD+POWERING_UP"
OFF = "IDLE+CLOUD+POWERED_DOWN"
AWAITED = "ALLOCATED+CLOUD+POWERED_DOWN"
Seen = tuple[str, str, str, str]


def node(name: str, states: str, *, mark: str = POOL.mark, reason: str = "") -> Seen:
    return name, states, mark, reason


def shown(seen: Sequence[Seen]) -> Result:
    """As scontrol prints it."""
    entries = [
        {"name": name, "state": states.split("+"), "extra": json.dumps({MARK: mark}), "reason": why}
        for name, states, mark, why in seen
    ]
    return Result(code=0, stdout=json.dumps({"nodes": entries}))


@dataclass
class Kubernetes:
    """Refuses pods as long as it says why."""

    clock: list[float]
    """On which no hour is set back, as on that of the wall."""
    commands: list[str]
    why: str = ""
    asked_at: list[float] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    """As the watch has told."""
    really: frozenset[str] | None = None
    """As a question of now says; None: no answer."""

    def there(self) -> frozenset[str] | None:
        return self.really

    def start(self, _pool: Pool, names: Collection[str]) -> str:
        self.asked_at.append(self.clock[0])
        self.commands.append(f"pods of {', '.join(names)}")
        return self.why

    def end(self, pods: Collection[str]) -> str:
        self.commands.append(f"end of {', '.join(pods)}")
        return ""


class World:
    """A slurmctld with records, by number of the question; the last answer stays."""

    def __init__(self, *seen: Sequence[Seen], pool: Pool | FixedPool = POOL) -> None:
        self.seen = list(seen)
        self.runner = FakeRunner(
            {"scontrol show nodes": self._show, "squeue --all --states=completing": self._completing}
        )
        self.had: list[str] = []
        """Nodes that each completing job had."""
        self.log: list[str] = []
        self.synced = True
        self.kubernetes = Kubernetes([1000.0], self.runner.commands)
        given: dict[str, Any] = {"nodes": Nodes(self.log.append, self.runner), "pods": self.kubernetes}
        elastic, fixed = ({"gpu": pool}, {}) if isinstance(pool, Pool) else ({}, {"cpu": pool, "others": None})
        self.rounds = Rounds(
            **given, pools=lambda: elastic, sets=lambda: fixed, there=lambda: self.kubernetes.pods,
            synced=lambda: self.synced, log=self.log.append, ready=Ready(lambda: None),
            now=lambda: 2e9 - self.kubernetes.clock[0], steady=lambda: self.kubernetes.clock[0],
        )  # fmt: skip

    def _show(self, _: Sequence[str]) -> Result:
        return shown(self.seen.pop(0) if len(self.seen) > 1 else self.seen[0])

    def _completing(self, _: Sequence[str]) -> Result:
        jobs = [{"job_resources": {"nodes": {"list": had}}} for had in self.had]
        return Result(code=0, stdout=json.dumps({"jobs": jobs}))

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
    late = [node("gpu-0", "DOWN+CLOUD+POWERED_DOWN", reason="ResumeTimeout reached")]
    world.seen, coming = [late], world.seen
    assert world.done()[0].endswith("Z: gpu-0: exceeded quota")
    world.seen = coming
    kubernetes.why = ""
    kubernetes.clock[0] += 30
    asked = len(kubernetes.asked_at)
    world.rounds.look()
    assert len(kubernetes.asked_at) == asked + 1


def test_a_node_is_given_up_when_its_pod_is_gone_by_a_question_of_now_whatever_a_watch_has_told() -> None:
    """A connection that died silently: pods that were made since then are not in the copy."""
    world = World([node("gpu-0", "MIXED+CLOUD")])
    world.looks(20, lambda: world.done() == [] or pytest.fail("no answer"))
    world.kubernetes.really = frozenset({"gpu-0"})
    assert world.done() == []
    assert world.rounds.look()[1] == USUAL_SECONDS
    world.kubernetes.really = frozenset()
    assert world.done() == ["update nodename=gpu-0 state=down reason=slurmstack/elastic: its pod is gone"]


def test_there_are_two_looks_a_second_at_most_whoever_asks_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    wake = threading.Event()

    def look() -> tuple[float, float]:
        if len(slept) == 3:
            raise KeyboardInterrupt
        wake.set()
        return QUICK_SECONDS, 3600.0

    world = World()
    monkeypatch.setattr(world.rounds, "look", look)
    monkeypatch.setattr(time, "sleep", slept.append)
    with pytest.raises(KeyboardInterrupt):
        world.rounds.keep_looking(wake)
    assert slept == [0.5] * 3


def test_what_slurm_refuses_is_no_reason_to_hurry() -> None:
    """A node that it does not resume was asked for four times a second."""
    world = World([node("gpu-0", f"{OFF}+DRAIN", reason=STAYS_LEAVING)])
    world.runner.answers["scontrol update"] = Result(code=1, stderr="no")
    assert world.rounds.look()[1] == USUAL_SECONDS


def test_where_the_api_server_does_not_answer_no_more_pods_are_ended() -> None:
    """Each of a hundred would wait for as long; where it refuses one, the others may go."""
    kube = Mock()
    for status, most in ((None, AT_ONCE), (403, 100)):
        kube.delete_pod = Mock(side_effect=KubeError("timed out", status))
        said = Pods(kube, lambda _: None).end(
            {f"gpu-{number}": Pod(name=f"gpu-{number}", pool="gpu") for number in range(100)}
        )
        assert (kube.delete_pod.call_count <= most, bool(said)) == (True, status is None)
    assert kube.delete_pod.call_count == 100


def test_records_of_older_resources_are_made_anew_in_the_same_look_half_of_them_at_a_time() -> None:
    """While a pool has no record at all, sbatch refuses what needs it."""
    names = [f"gpu-{number}" for number in range(4)]
    world = World([node(name, OFF, mark="old") for name in names], pool=replace(POOL, most=4))
    world.runner.answers["squeue"] = Result(code=0, stdout="gpu-3\n")
    assert [command.partition(" state")[0] for command in world.done()] == [
        "delete nodename=gpu-[0,2]", "create nodename=gpu-[0,2]", "update nodename=gpu-[0,2]",
        "delete nodename=gpu-1", "create nodename=gpu-1", "update nodename=gpu-1",
    ], "but one that a job asks for by name"  # fmt: skip


def test_a_record_stays_while_a_job_that_had_the_node_is_completing_on_another() -> None:
    """slurmctld's next start would leave the job COMPLETING for ever."""
    world = World([node("gpu-0", OFF, mark="old"), node("gpu-1", f"{OFF}+DRAIN", reason=LEAVES)])
    world.had = ["cpu-0,gpu-[0-1]"]
    assert world.done() == []
    world.had.clear()
    assert [command for command in world.done() if "delete" in command] == [
        "delete nodename=gpu-0", "delete nodename=gpu-1",
    ]  # fmt: skip


def test_nodes_are_held_back_before_pods_are_made_and_only_those_that_no_job_has_got_meanwhile() -> None:
    names = [f"gpu-{number}" for number in range(3)]
    before = [node(name, AWAITED if name == "gpu-0" else OFF) for name in names]
    meanwhile = [node(name, OFF if name == "gpu-2" else AWAITED) for name in names]
    world = World(before, meanwhile, pool=replace(POOL, most=3))
    for name in ("gpu-1", "gpu-2"):
        world.kubernetes.pods[name] = Pod(name=name, pool="gpu", digest="new", is_leaving=True)  # for long
    assert world.done() == [f"update nodename=gpu-2 state=drain reason={STAYS_LEAVING}", "pods of gpu-0"]


def test_a_node_that_came_in_vain_is_given_back_and_one_of_a_fixed_pool_never() -> None:
    """What a node came for may have had nodes of fixed pools, too."""
    fixed = node("cpu-0", "IDLE+DYNAMIC_NORM")
    coming = [node("gpu-0", COMING), node("gpu-1", COMING), fixed]
    came = [node("gpu-0", COMING), node("gpu-1", "MIXED+CLOUD"), fixed]
    late = [
        node("gpu-0", "DOWN+CLOUD+POWERED_DOWN", reason="ResumeTimeout reached"),
        node("gpu-1", "IDLE+CLOUD"),
        fixed,
    ]
    world = World(coming, came, late, pool=replace(POOL, most=2))
    world.kubernetes.pods = {name: Pod(name=name, pool="gpu", digest="new") for name in ("gpu-0", "gpu-1")}
    for _ in range(2):
        world.kubernetes.clock[0] -= 60  # forward on the clock of the wall
        world.rounds.look()
    changes = world.done()
    assert changes[0].startswith("update nodename=gpu-0 state=drain reason=slurmstack/elastic: did not come, 1 in vain")
    given_back = "update nodename=gpu-1 state=power_down_asap reason=slurmstack/elastic: others of its job did not come"
    assert changes[1:] == [given_back, "end of gpu-0"]


def test_no_record_is_made_of_a_pool_that_slurmctld_does_not_know() -> None:
    """The configuration agent would delete it: its configuration was rejected, or comes in a moment."""
    world = World([], pool=POOL)
    world.runner.answers["scontrol show partition elastic-gpu"] = Result(code=1)
    world.looks(10, lambda: world.done() == [] or pytest.fail("it is made"))
    assert len(world.log) == 1
    assert world.rounds.look()[1] == USUAL_SECONDS
    world.runner.answers.clear()
    world.runner.answers["scontrol show nodes"] = Result(code=0, stdout="No nodes in the system")
    world.kubernetes.clock[0] += 30
    assert world.done()[0].startswith("create nodename=gpu-0")


def test_pools_that_kubernetes_tells_of_while_slurm_answers_are_seen_and_not_taken_for_gone() -> None:
    """At the start: nodes that run jobs would be sent off."""
    world = World([node("gpu-0", "MIXED+CLOUD")])
    world.kubernetes.pods = {"gpu-0": Pod(name="gpu-0", pool="gpu", digest="new")}
    told, answer = world.rounds.pools(), world.runner.answers["scontrol show nodes"]
    known: list[dict[str, Pool | None]] = [{}]

    def tells(argv: Sequence[str]) -> Result:
        known.append(dict(told))
        return answer(argv) if callable(answer) else answer

    world.rounds.pools, world.rounds.synced = lambda: known[-1], lambda: len(known) > 1
    world.runner.answers["scontrol show nodes"] = tells
    assert world.done() == []


def test_nodes_of_a_pool_that_was_never_understood_are_left_alone_and_all_others_go_on() -> None:
    """Its nodes would be sent off, or no pool would get any pod."""
    world = World([node("gpu-0", COMING), node("new-0", "IDLE+CLOUD"), node("new-1", OFF)])
    world.kubernetes.pods = {"new-0": Pod(name="new-0", pool="new", digest="x")}
    world.rounds.pools = lambda: {"new": None, "gpu": POOL}
    assert world.done() == ["pods of gpu-0"]


FIXED = FixedPool(name="cpu", size=3, revision="new", max_unavailable="1")


def rolling(*states: str, old: Sequence[int] = ()) -> World:
    """A pool of three nodes, some of which have old pods."""
    world = World(cpus(*states), pool=FIXED)
    world.kubernetes.pods = {
        f"cpu-{number}": Pod(
            name=f"cpu-{number}", pool="cpu", revision="old" if number in old else "new", is_ready=True
        )
        for number in range(3)
    }
    return world


def cpus(*states: str) -> list[Seen]:
    return [
        node(f"cpu-{number}", text.partition(" ")[0], reason=text.partition(" ")[2])
        for number, text in enumerate(states)
    ]


def test_who_is_drained_by_somebody_between_two_looks_keeps_that_reason() -> None:
    world = rolling("IDLE", "IDLE", "IDLE", old=[0])
    assert world.done() == [f"update nodename=cpu-0 state=drain reason={ROLLS}"]
    world.seen = [cpus(f"MIXED+DRAIN {ROLLS}", "IDLE", "IDLE")]
    assert world.rounds.look()[1] == ROLLING_SECONDS, "it waits for its jobs"
    world.seen = [cpus("IDLE", "IDLE", "IDLE"), cpus("IDLE+DRAIN a fan", "IDLE", "IDLE")]
    assert world.done() == []


def test_a_drain_that_was_left_is_given_back_and_then_slurm_is_not_asked_any_more() -> None:
    world = rolling("IDLE", f"IDLE+DRAIN {ROLLS}", "IDLE")
    assert world.done() == ["update nodename=cpu-1 state=resume"]
    world.seen = [cpus("IDLE", "IDLE", "IDLE")]
    for _ in range(2):
        world.runner.commands.clear()
        assert world.rounds.look()[1] == USUAL_SECONDS
    assert world.runner.commands == [], "whatever happens to any pod"
    world.kubernetes.pods["cpu-2"] = Pod(name="cpu-2", pool="cpu", revision="old", is_ready=True)
    assert world.done() == [f"update nodename=cpu-2 state=drain reason={ROLLS}"]


def test_nothing_is_done_without_a_whole_copy_of_kubernetes_or_without_slurmctld() -> None:
    world = rolling("IDLE", "IDLE", "IDLE", old=[0, 1, 2])
    world.synced = False
    assert world.done() == []
    world.synced, world.runner.answers["scontrol show nodes"] = True, Result(code=1, stderr="no answer")
    with pytest.raises(ControllerUnreachableError):
        world.done()
