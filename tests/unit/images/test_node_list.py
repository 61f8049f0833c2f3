"""The list of nodes is asked for once, and nobody sees one from before a change of his own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from images.common.command import Result
from images.controller.control import Slurmctld
from images.controller.node_list import FRESH_SECONDS, LONGEST_SECONDS, SHARE, NodeList
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


@pytest.fixture
def slurmctld() -> FakeSlurmctld:
    return FakeSlurmctld(FakeClock())


@pytest.fixture
def shared(slurmctld: FakeSlurmctld) -> NodeList:
    return NodeList(slurmctld=slurmctld, clock=slurmctld.clock)


def test_one_answer_serves_all_who_look_in_the_same_second_and_longer_where_it_took_long(
    slurmctld: FakeSlurmctld, shared: NodeList
) -> None:
    for number, (takes, serves) in enumerate([(0.0, FRESH_SECONDS), (0.5, 0.5 * SHARE), (30.0, LONGEST_SECONDS)], 1):
        slurmctld.takes = takes
        shared.nodes()
        slurmctld.clock.sleep(serves - 0.1)
        shared.nodes()
        assert slurmctld.asked == number, takes
        slurmctld.clock.sleep(0.2)
    shared.nodes()
    assert slurmctld.asked == 4


def test_after_a_change_or_where_it_matters_the_list_is_new(slurmctld: FakeSlurmctld, shared: NodeList) -> None:
    shared.nodes()
    for number, change in enumerate((shared.undrain, shared.leave_to_elastic, shared.delete_node), 2):
        change("a-0")
        shared.nodes()
        assert slurmctld.asked == number, change
    shared.nodes(newest=True)
    assert slurmctld.asked == 5


def test_no_answer_is_asked_for_again_at_once(slurmctld: FakeSlurmctld, shared: NodeList) -> None:
    slurmctld.text = None
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


def test_a_list_from_before_a_change_of_their_own_is_not_taken(pod: Pod) -> None:
    for argv, still in (
        (["scontrol", "show", "node", "a-0", "--json"], True),
        (["squeue", "--me"], True),
        (["scontrol", "update", "nodename=a-0", "extra=x"], False),
        (["sbatch", "x"], False),
    ):
        pod.watcher(list(ARGV))
        pod.time += 1
        pod.tester(argv)
        assert pod.reads() is still, argv
        pod.time += 1


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
