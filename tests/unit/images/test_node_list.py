"""The list of nodes is asked for once, and nobody sees one from before a change of his own."""

from __future__ import annotations

import pytest

from images.controller.control import Slurmctld
from images.controller.node_list import FRESH_SECONDS, LONGEST_SECONDS, SHARE, NodeList
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
