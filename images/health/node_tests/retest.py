"""Measuring a drained node again: what to do about each re-test. Nothing here asks or changes anything.

A node that is drained for a test takes no jobs, so nobody would ever see that it is well again. Half an hour after the
drain, and after the run before, it is kept apart by a reservation `health-test-<node>` for the user `slurm`, taken out
of the drain, and measured. The reservation has no end, and goes only when Slurm has the verdict, or the drain, on
record: users never get in between. Its comment tells all there is to know, so the program may be ended at any point:

    re-test of cpu-speed, last run 2026-11-21T21:55:03Z, drained 2026-11-21T21:56:10Z: health/cpu-speed [hardware]: ...

Each round looks at each of these reservations first, and takes one step:

| the node                          | test waits or runs    | result being written | no test otherwise       |
| --------------------------------- | --------------------- | -------------------- | ----------------------- |
| drained, as when this was planned | end it                | delete               | undrain and submit, (1) |
| drained for this test, but later  | end it                | delete               | delete                  |
| drained for another check of ours | end it                | wait                 | well: delete, else (2)  |
| closed or down by somebody else   | end it, and delete    | delete               | delete                  |
| open, or down by Slurm itself     | wait, (3)             | wait                 | well: delete, else (2)  |
| gone                              | end it, and delete    | delete               | delete                  |

"Delete" is the reservation.
(1) As soon as the node's record says that it is reserved. If the node is not idle any more: delete.
(2) Drain it: with the new figures if the test has failed, else (not checked, cancelled, refused, or ended between the
undrain and the submit) with the former reason. The next round sees the drain, and deletes the reservation. A drain that
the watcher has set for something else meanwhile gets the former reason too, as if there had been no re-test: if the
other thing counts more, the watcher says so by its own rules.
(3) It is ended by its time limit, and here if it has not started in three minutes.

Administrators win: a reason or a drain of theirs stays, and whoever deletes the reservation has the node (Slurm refuses
while the test waits or runs; what that finds counts as ever). A reservation of our name with another comment, or of
other nodes, is somebody else's, and its node is not measured again while it is there. One thing cannot be told from
what this does itself: a node that somebody resumes while it is reserved and before it is measured is drained again.

The same way a node is measured that may be another machine than before: the watcher keeps it drained for `new-machine`
(`watch/decide.py`). Its tests run one after the other, without the half hour, and after each that is well the node is
drained as before. When none is left, the drain is lifted here. What could not be checked counts as done: a tool that is
not installed would keep the node for ever.

Tests of pairs are left out: the partner would be taken from users while the test runs, and would be a suspect itself
after each bad run with a node that is known to be bad.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from images.health.contract import Status
from images.health.node_tests.contract import NodeTest
from images.health.node_tests.plan import AGAIN_SECONDS, NodeView, TestJob, fits
from images.health.node_tests.results import Record
from images.health.reason import NEW_MACHINE, reason_for
from images.health.reason import parse as parse_reason
from images.health.report import moment, stamp
from images.health.slurm import TEST_RESERVATION, Reservation

RETEST_SECONDS: Final = 1800.0
"""From the drain, and from the run before, to the next run. Longer than a result drains for (`watch/decide.py`), else
the watcher would drain the node for the old one."""
PENDING_SECONDS: Final = 180.0
"""After which a test that has not started is given up: nobody else may use the node, but slurmd may not answer."""
NEW_SECONDS: Final = 20.0
"""From the drain to the first, or next, test of a new machine: a test that Slurm does not start, or that somebody ends,
is not tried again without a pause."""
NEVER: Final = "never"

_NAME: Final = TEST_RESERVATION
_COMMENT: Final = re.compile(
    r"re-test of (?P<test>[a-z0-9][a-z0-9-]*), last run (?P<last>\S+), drained (?P<drained>\S+): (?P<reason>.*)"
)
_DRAINED: Final = frozenset({"IDLE", "DRAIN", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""States of a drained node on which nothing runs and about which nobody has said anything else."""
_RESERVED: Final = frozenset({"MAINTENANCE", "RESERVED"})
_SLURMS_OWN: Final = ("Not responding", "Node unexpectedly rebooted", "ResumeTimeout reached", "lifted: health/")
"""Beginnings of the reasons of a node that Slurm has set down, and sets up by itself (`ReturnToService=2`); the last
one is ours (`reason.py`), on a node that went down before Slurm had cleared it."""

_BY_US: Final = "drained for a check"
_BY_OTHERS: Final = "kept from jobs by somebody else"
_OPEN: Final = "open"
_GONE: Final = "gone"


@dataclass(frozen=True, kw_only=True)
class Retest:
    """A reservation of ours, and all that is in it."""

    node: str
    test: str
    last: int
    """When the run before began; 0: there is none on record."""
    drained_at: int
    """When the reason was set."""
    reason: str
    """Of the drain that was there."""

    @property
    def name(self) -> str:
        """Of the reservation."""
        return name_of(self.node)

    @property
    def comment(self) -> str:
        """Of the reservation."""
        last = stamp(self.last) if self.last else NEVER
        return f"re-test of {self.test}, last run {last}, drained {stamp(self.drained_at)}: {self.reason}"


class Step(enum.Enum):
    """What can be done about a re-test."""

    WAIT = "wait"
    BEGIN = "begin"
    """Undrain the node, and submit the test."""
    CANCEL = "cancel"
    """End the test."""
    DRAIN = "drain"
    """Drain the node again."""
    DELETE = "delete"
    """End the test if there is one, and delete the reservation."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """The next step of a re-test."""

    step: Step
    retest: Retest
    why: str = ""
    jobs: tuple[int, ...] = ()
    """To be cancelled."""
    reason: str = ""
    """To drain with."""


def name_of(node: str) -> str:
    """The name of a re-test's reservation."""
    return f"{_NAME}{node}"


def own(reservation: Reservation) -> Retest | None:
    """The re-test that a reservation stands for; None: it is somebody else's."""
    match = _COMMENT.fullmatch(reservation.comment)
    if match is None or reservation.name != name_of(reservation.nodes):
        return None
    last = 0 if match["last"] == NEVER else moment(match["last"])
    drained_at = moment(match["drained"])
    if last is None or drained_at is None:
        return None
    return Retest(
        node=reservation.nodes, test=match["test"], last=last, drained_at=drained_at, reason=match["reason"].strip()
    )


def due(
    nodes: Iterable[NodeView],
    busy: Iterable[str],
    reserved: Iterable[str],
    tests: Mapping[str, NodeTest],
    now: float,
    *,
    after: float = RETEST_SECONDS,
    first: Sequence[NodeTest] = (),
) -> Iterator[Retest]:
    """Nodes that are to be measured again, who has waited longest first.

    `busy`: nodes of tests that wait or run. `reserved`: names of all reservations. `now`: by slurmctld's clock.
    `after`: seconds from the drain, and from the run before. `first`: tests that a new machine has to pass.
    """
    busy, reserved = set(busy), set(reserved)
    for node in sorted(nodes, key=lambda node: (node.reason_at or 0.0, node.name)):
        check = _drained_for(node)
        test = unmeasured(node, first) if check == NEW_MACHINE else tests.get(check)
        if test is None or test.nodes > 1 or not fits(test, node) or not node.partitions or not node.reason_at:
            continue
        if not _is_quiet(node):
            continue
        record = node.records.get(test.name)
        last = record.at if record is not None else 0
        idle = node.name not in busy and name_of(node.name) not in reserved
        ready_at = max(last, node.reason_at) + after
        if check == NEW_MACHINE:
            ready_at = max(node.reason_at + NEW_SECONDS, last + _pause(record, after))
        if idle and now >= ready_at:
            # In one line, as the reservation's comment is read line by line.
            reason = " ".join(node.reason.split())
            yield Retest(node=node.name, test=test.name, last=last, drained_at=int(node.reason_at), reason=reason)


def unmeasured(node: NodeView, first: Iterable[NodeTest]) -> NodeTest | None:
    """The next of these tests that a new machine has to pass; None: there is none left."""
    for test in first:
        record = node.records.get(test.name)
        if test.nodes > 1 or not fits(test, node):
            continue
        if record is None or record.at < node.started_at or record.result.status in {Status.WARN, Status.FAIL}:
            return test
    return None


def measured(
    nodes: Iterable[NodeView], busy: Iterable[str], reserved: Iterable[str], first: Sequence[NodeTest]
) -> Iterator[NodeView]:
    """New machines that have passed all tests: their drain is to be lifted. Takes what `due` takes."""
    busy, reserved = set(busy), set(reserved)
    for node in nodes:
        apart = node.name in busy or name_of(node.name) in reserved
        if not apart and _drained_for(node) == NEW_MACHINE and _is_quiet(node) and unmeasured(node, first) is None:
            yield node


def _pause(record: Record | None, after: float) -> float:
    """Seconds from a run on a new machine to the next one of the same test."""
    waits = {Status.WARN: AGAIN_SECONDS, Status.FAIL: after}
    return 0.0 if record is None else waits.get(record.result.status, 0.0)


def _is_quiet(node: NodeView) -> bool:
    """Whether a drained node has no jobs, and nobody has said anything else about it."""
    return "IDLE" in node.states and node.states <= _DRAINED


def move(
    retest: Retest,
    node: NodeView | None,
    jobs: Sequence[TestJob],
    tests: Mapping[str, NodeTest],
    now: float,
    *,
    unread: bool,
) -> Move:
    """The next step. `node`: as Slurm has it, with the records that are written. `jobs`: tests that wait or run.

    `unread`: a run has ended on the node of which the result is not on record yet.
    """
    numbers = tuple(job.number for job in jobs if retest.node in job.nodes)
    closed = _closed(node)
    delete = Move(step=Step.DELETE, retest=retest, jobs=numbers, why=f"the node is {closed}")
    if node is None or closed == _BY_OTHERS:
        # At once: a leaving pod deletes its record when the test has ended, which Slurm refuses while it is reserved.
        return delete
    if numbers:
        return _with_jobs(retest, closed, jobs, now)
    if _drained_for(node) == _about(retest):
        not_begun = node.reason_at == retest.drained_at and not unread
        return _not_begun(retest, node, tests) if not_begun else delete
    return Move(step=Step.WAIT, retest=retest) if unread else _judged(retest, node)


def _judged(retest: Retest, node: NodeView) -> Move:
    """Of a node that nothing runs on any more."""
    record = node.records.get(retest.test)
    verdict = record if record is not None and record.at > retest.last else None
    if verdict is not None and verdict.result.status is Status.OK and _about(retest) == NEW_MACHINE:
        # Other tests may be left, and who lifts this drain is `measured`.
        return Move(step=Step.DRAIN, retest=retest, reason=retest.reason, why=f"{retest.test} is well")
    if verdict is not None and verdict.result.status is Status.OK:
        return Move(step=Step.DELETE, retest=retest, why=f"{retest.test} is well")
    if verdict is not None and verdict.result.status is Status.FAIL:
        return Move(
            step=Step.DRAIN, retest=retest, reason=reason_for(retest.test, verdict.result), why="it has failed again"
        )
    why = f"the result is {verdict.result.status.value}" if verdict is not None else "it was not measured"
    return Move(step=Step.DRAIN, retest=retest, reason=retest.reason, why=why)


def _closed(node: NodeView | None) -> str:
    """Who keeps jobs from a node, its reservation aside."""
    if node is None:
        return _GONE
    if not node.is_closed:
        return _OPEN
    if node.states & {"DRAIN", "FAIL", "FAILING"}:
        return _BY_US if node.own is not None else _BY_OTHERS
    # Down and not drained: Slurm's own downs end when slurmd answers again, and then the node would be open.
    return _OPEN if not node.reason or node.reason.startswith(_SLURMS_OWN) or node.own is not None else _BY_OTHERS


def _about(retest: Retest) -> str:
    """The check for which the node was drained when the re-test was planned."""
    found = parse_reason(retest.reason)
    return found.check if found is not None else retest.test


def _drained_for(node: NodeView) -> str:
    """The check for which a node is drained; empty if it is not, or for something else."""
    return node.own.check if node.own is not None and _closed(node) == _BY_US else ""


def _with_jobs(retest: Retest, closed: str, jobs: Sequence[TestJob], now: float) -> Move:
    """Of a node with a test that waits or runs."""
    mine = [job for job in jobs if retest.node in job.nodes]
    late = [job for job in mine if not job.running and now - job.submitted_at > PENDING_SECONDS]
    if closed != _OPEN:
        numbers = tuple(job.number for job in mine)
        return Move(step=Step.CANCEL, retest=retest, jobs=numbers, why=f"the node is {closed}")
    if late:
        numbers = tuple(job.number for job in late)
        return Move(step=Step.CANCEL, retest=retest, jobs=numbers, why="it did not start")
    return Move(step=Step.WAIT, retest=retest)


def _not_begun(retest: Retest, node: NodeView, tests: Mapping[str, NodeTest]) -> Move:
    """Of a node that is still drained as it was."""
    idle = "IDLE" in node.states and node.states <= _DRAINED | _RESERVED
    if not idle or retest.test not in tests or not node.partitions:
        return Move(step=Step.DELETE, retest=retest, why="the node cannot be measured any more")
    return Move(step=Step.BEGIN if node.states & _RESERVED else Step.WAIT, retest=retest)
