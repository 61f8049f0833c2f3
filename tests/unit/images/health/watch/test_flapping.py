"""A check that fails again and again has to be well for a while before its drain is lifted."""

from __future__ import annotations

from collections.abc import Callable

from images.health.contract import Result
from images.health.watch.flapping import WINDOW_SECONDS, Flapping, Hold, wait_of
from images.health.watch.view import Finding, NodeView
from tests.unit.images.health.tables import table
from tests.unit.images.health.watch.views import NOW, OK, failed


class Node:
    """A node that the test drains and lifts."""

    def __init__(self) -> None:
        self.flapping, self.time = Flapping(), NOW
        self.drained_at: float | None = None
        self.name, self.check = "w-0", "disks"
        self.declared, self.since = False, None

    def look(self, result: Result = OK, later: float = 2.0) -> Hold | None:
        self.time += later
        drained = self.drained_at is not None
        finding = Finding(result=result, at=self.time, declared=self.declared, unwanted_since=self.since)
        view = NodeView(
            name=self.name,
            states=frozenset({"IDLE", "DRAIN"} if drained else {"IDLE"}),
            reason=f"health/{self.check} [node]: x" if drained else "",
            reason_at=self.drained_at,
            findings={self.check: finding},
        )
        holds = self.flapping.holds([view], self.time)
        assert len(holds) <= 1
        return holds[0] if holds else None

    def drain(self) -> None:
        self.time += 30
        self.drained_at = self.time
        assert self.look(failed()) is None

    def lift(self) -> None:
        self.flapping.lifted(self.name)
        self.drained_at = None
        self.look()

    def play(self, story: str) -> None:
        """A story in words: `30+`, `30-`: it is well 30 s later, and held or not; others name what happens."""
        happens: dict[str, Callable[[], object]] = {
            "drain": self.drain,
            "lift": self.lift,
            "fails": lambda: self.look(failed()),
            "restart": lambda: setattr(self, "flapping", Flapping()),
            "day": lambda: setattr(self, "time", self.time + WINDOW_SECONDS),
            "other-check": lambda: setattr(self, "check", "dns"),
            "other-reason": lambda: self.__dict__.update(check="dns", drained_at=self.time),
            "cordoned": lambda: self.__dict__.update(check="kubernetes", declared=True),
            "condition": lambda: self.__dict__.update(check="kubernetes", declared=True, since=NOW),
        }
        for number, word in enumerate(story.split()):
            if word[-1] in "+-":
                assert (self.look(later=float(word[:-1])) is not None) == (word[-1] == "+"), f"{number}: {word}"
            else:
                assert not happens[word](), f"{number}: {word}"


@table(
    "story",
    {
        "the first drain is lifted at once": "drain 30-",
        "the second needs a minute": "drain lift drain 30+ 59+ 1-",
        "a failure in between starts the time anew": "drain lift drain 30+ 50+ fails 2+ 59+ 1-",
        "a drain that is looked at often counts once": "drain" + " fails" * 20 + " 30-",
        "another check has a count of its own": "drain lift drain lift drain lift other-check drain 30-",
        "after a day the count begins anew": "drain lift drain lift drain lift day drain 30-",
        "a restart forgets how long to wait": "drain lift drain lift drain restart 30-",
        "who cordons a machine often is no check": "cordoned drain 30- lift drain 30- lift drain 30- lift drain 30-",
        "a condition that comes and goes is": "condition drain lift drain 30+",
        "a reason that changes is a drain of that check": "drain lift drain other-reason fails 30- lift drain 30+",
    },
)
def test_a_check_that_fails_again_has_to_be_well_for_longer(story: str) -> None:
    Node().play(story)


def test_the_wait_doubles_and_ends_at_an_hour() -> None:
    assert [wait_of(drains) for drains in (0, 1, 2, 3, 4, 7, 8, 10**6)] == [0, 0, 60, 120, 240, 1920, 3600, 3600]
