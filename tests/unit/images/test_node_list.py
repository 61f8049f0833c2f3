"""The list of nodes is asked for once, and nobody sees one from before a change of his own."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from images.common.command import Result
from images.controller.control import Slurmctld
from images.controller.node_list import LONGEST_SECONDS, SHARE, NodeList
from images.health.node_list import ARGV, OLDEST_SECONDS, Shared, Sharing
from tests.fakes.commands import FakeClock, FakeRunner


class FakeSlurmctld(Slurmctld):
    """Counts questions, each of which takes a while."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(runner=FakeRunner())
        self.clock = clock
        self.asked = 0
        self.takes = 0.0
        self.text: str | None = "NodeName=a-0 Arch=x86_64 State=IDLE Weight=1"

    def nodes_text(self) -> str | None:
        self.asked += 1
        self.clock.sleep(self.takes)
        return self.text


def test_one_answer_serves_all_who_look_in_the_same_second() -> None:
    clock = FakeClock()
    slurmctld = FakeSlurmctld(clock)
    shared = NodeList(slurmctld=slurmctld, clock=clock)
    assert shared.nodes() == shared.nodes()
    assert slurmctld.asked == 1
    clock.sleep(1.0)
    shared.nodes()
    assert slurmctld.asked == 2


@pytest.mark.parametrize(("takes", "serves"), [(0.5, 0.5 * SHARE), (30.0, LONGEST_SECONDS)])
def test_an_answer_that_took_long_serves_for_longer(takes: float, serves: float) -> None:
    clock = FakeClock()
    slurmctld = FakeSlurmctld(clock)
    slurmctld.takes = takes
    shared = NodeList(slurmctld=slurmctld, clock=clock)
    shared.nodes()
    clock.sleep(serves - 0.1)
    shared.nodes()
    assert slurmctld.asked == 1
    clock.sleep(0.2)
    shared.nodes()
    assert slurmctld.asked == 2


@pytest.mark.parametrize(
    "act",
    [
        lambda shared: shared.undrain("a-0"),
        lambda shared: shared.leave_to_elastic("a-0"),
        lambda shared: shared.delete_node("a-0"),
        lambda _: None,
    ],
)
def test_after_a_change_or_where_it_matters_the_list_is_new(act: Callable[[NodeList], object]) -> None:
    clock = FakeClock()
    slurmctld = FakeSlurmctld(clock)
    shared = NodeList(slurmctld=slurmctld, clock=clock)
    shared.nodes()
    changed = act(shared) is not None
    shared.nodes(newest=not changed)
    assert slurmctld.asked == 2


def test_no_answer_is_asked_for_again_at_once() -> None:
    clock = FakeClock()
    slurmctld = FakeSlurmctld(clock)
    slurmctld.text = None
    shared = NodeList(slurmctld=slurmctld, clock=clock)
    assert shared.nodes() is None
    assert shared.nodes() is None
    assert slurmctld.asked == 2


# ---------------------------------------------------------------- in the watcher's pod


class Pod:
    """The watcher and the tests of nodes, and the commands that each has really started."""

    def __init__(self, directory: Path) -> None:
        self.time = 1_000_000.0
        self.started: list[tuple[str, ...]] = []
        self.lasts = 0.0
        file = directory / "nodes.json"
        self.watcher = Sharing(runner=self.run, file=file, wall=lambda: self.time)
        self.tester = Shared(runner=self.run, file=file, wall=lambda: self.time)

    def run(self, argv: Sequence[str], *, timeout: float = 10.0, env: object = None) -> Result:
        del timeout, env
        self.started.append(tuple(argv))
        self.time += self.lasts
        return Result(code=0, stdout=json.dumps({"nodes": len(self.started)}))

    def reads(self) -> bool:
        """Whether the tests take the watcher's list."""
        before = len(self.started)
        self.tester(list(ARGV))
        return len(self.started) == before


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_the_tests_of_nodes_take_the_watchers_list(pod: Pod) -> None:
    assert not pod.reads(), "there is none yet"
    answer = pod.watcher(list(ARGV))
    pod.time += 5
    assert pod.tester(list(ARGV)) == Result(code=0, stdout=answer.stdout)
    pod.time += OLDEST_SECONDS
    assert not pod.reads(), "the watcher is away"


@pytest.mark.parametrize(
    ("argv", "still"),
    [
        (["scontrol", "show", "node", "a-0", "--json"], True),
        (["squeue", "--me"], True),
        (["scontrol", "update", "nodename=a-0", "extra=x"], False),
        (["sbatch", "x"], False),
    ],
)
def test_a_list_from_before_a_change_of_their_own_is_not_taken(pod: Pod, argv: list[str], still: bool) -> None:
    pod.watcher(list(ARGV))
    pod.time += 1
    pod.tester(argv)
    assert pod.reads() is still
    pod.time += 1
    pod.watcher(list(ARGV))
    assert pod.reads()


def test_what_counts_is_when_the_watcher_asked(pod: Pod) -> None:
    """An answer that came after a change may have been made before it."""
    pod.lasts = 3
    asking_since = pod.time
    pod.tester(["sbatch", "x"])
    pod.time = asking_since
    pod.watcher(list(ARGV))
    pod.time += 10
    assert not pod.reads()


def test_where_nobody_else_looks_nothing_is_written(tmp_path: Path) -> None:
    pod = Pod(tmp_path / "no-such-volume")
    pod.watcher(list(ARGV))
    assert not pod.reads()
    assert not list(tmp_path.iterdir())
