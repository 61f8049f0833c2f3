"""health-tests: runs the tests of nodes as Slurm jobs, and writes what they find to the nodes' records.

A container beside the watcher, which drains a node that has failed. It remembers nothing that is not in Slurm, and may
be ended at any time: tests that run go on, and are taken up by the next one. SETTINGS names the file of settings
(`Settings`). Users never wait for a test for long: one starts only on an idle node in whose partitions no job waits for
nodes, and is ended as soon as one does. At most a tenth of the nodes is under test at a time. A node is slow if it is
twice in a row; the first time is a warning, and the test runs again soon.

`--node NODE`: have one node measured now, and tell what is found (`slurmstack health test`); exit code 1 if it is
drained then, 2 if it cannot be measured. Started as root it goes on as `slurm`, as root may not submit jobs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from images.common.command import Result as Done
from images.common.command import run
from images.common.health.contract import Result, Status, not_checked
from images.common.health.report import Finding, lifted, line_of, reason_for, with_measured
from images.common.health.slurm import Record, SlurmError, keep_looking
from images.common.log import Log
from images.common.process import drop_privileges, end_on_sigterm
from images.common.wait import Clock, Reminder
from images.health.node_tests.catalog import TESTS, NodeTest, judge
from images.health.node_tests.slurm import RESERVATION, Settings, TestJob, TestSlurm
from images.health.watch.decide import Limit

POLL_SECONDS: Final = 5.0
"""So long users wait for a test to be ended, at most."""
LONGEST_POLL_SECONDS: Final = 30.0
HAND_POLL_SECONDS: Final = 3.0
LEFT_SECONDS: Final = 120.0
"""After which a node that is kept for the tests, of which none waits or runs, is given back: a `--node` has ended that
could not do it."""
WELL, DRAINED, REFUSED = 0, 1, 2
"""Exit codes of `--node`."""
MOST_UNDER_TEST: Final = Limit(number=10, percent=True)
INTERVAL_SECONDS: Final = 86_400.0
"""From one run of a test on a node to the next."""
PENDING_SECONDS: Final = 60.0
"""After which a test that has not started is not wanted any more."""
AGAIN_SECONDS: Final = 120.0
"""After which what was found bad once is measured again."""
FAILED_SECONDS: Final = 600.0
"""After which a node that has failed and is not drained is measured again: before the watcher takes it for old news
(`watch/decide.py`), and after an administrator has given the node back."""

_IDLE: Final = frozenset({"IDLE", "CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
"""States that a node may have where tests run. With any other one (planned for a job, reserved, asleep, ...) it is left
alone."""
HELD: Final = "MAINTENANCE"
"""Of a node that is kept for the tests."""


def after(test: NodeTest, job: TestJob, result: Result, node: Record) -> Finding | None:
    """What is new of a test on a node; None if it is there already."""
    last = node.tests.get(test.name)
    if last is not None and job.ended_at <= last.at:
        return None
    was_bad = last is not None and last.result.status in {Status.WARN, Status.FAIL}
    if result.status is Status.FAIL and not was_bad:
        result = replace(result, status=Status.WARN, message=f"{result.message}, measured once")
    return Finding(at=job.ended_at, result=result)


def unwanted(job: TestJob, node: Record, wanted: Collection[str], now: float) -> str:
    """Why a test has to end; empty if it has not to. `wanted`: partitions in which users' jobs wait for nodes."""
    if HELD in node.states:  # users cannot have it
        return ""
    if not {*node.partitions}.isdisjoint(wanted):
        return "a job waits"
    return "it did not start" if job.waits and now - job.submitted_at > PENDING_SECONDS else ""


def due(
    nodes: Collection[Record], busy: Collection[str], wanted: Collection[str], settings: Settings, now: float
) -> list[tuple[NodeTest, Record]]:
    """What to start, what is due longest first; each in the node's first partition.

    `busy`: nodes of tests that wait or run. `wanted`: see `unwanted`.
    """
    idle = [node for node in nodes if "IDLE" in node.states and node.states <= _IDLE and node.partitions]
    free = [node for node in idle if node.name not in busy and {*node.partitions}.isdisjoint(wanted)]
    wishes = [
        (due_at(last.get(test.name)), test, node)
        for node, last in ((node, node.tests) for node in free)
        for test in settings.fit(node)
    ]
    first: dict[str, tuple[NodeTest, Record]] = {}
    for at, test, node in sorted(wishes, key=lambda wish: (wish[0], wish[1].name, wish[2].name)):
        if at <= now:
            first.setdefault(node.name, (test, node))
    return list(first.values())[: max(MOST_UNDER_TEST.of(len(nodes)) - len(busy), 0)]


def due_at(last: Finding | None) -> float:
    """When a test is to run on a node again, in seconds since 1970; 0: it never has."""
    if last is None:
        return 0.0
    pauses = {Status.WARN: AGAIN_SECONDS, Status.FAIL: FAILED_SECONDS}
    return last.at + pauses.get(last.result.status, INTERVAL_SECONDS)


@dataclass(kw_only=True)
class NodeTester:
    """Looks at all nodes and jobs, tells what has ended, and starts and ends tests; one round at a time."""

    slurm: TestSlurm
    log: Callable[[str], None]
    wall: Callable[[], float] = time.time
    """The clock that slurmctld has too."""
    _unused: dict[str, float] = field(default_factory=dict)
    """Nodes that are kept for the tests without one -> since when."""
    _logged: dict[str, str] = field(default_factory=dict)

    def round(self) -> None:
        """Look once, and act. Raises SlurmError when slurmctld does not answer."""
        slurm, now = self.slurm, self.wall()
        jobs, wanted = slurm.jobs(), slurm.wanted_partitions()
        nodes = {node.name: node for node in slurm.nodes()}
        for job in sorted((job for job in jobs if job.ended), key=lambda job: job.ended_at):
            self._record(job, nodes)
        for one in nodes.values():
            if one.own in TESTS and one.is_drained_by_us and one.started_at > (one.reason_at or one.started_at):
                self._open(one)
        live = [job for job in jobs if not job.ended]
        for job in live:
            node = nodes.get(job.node)
            if node is not None and (why := unwanted(job, node, wanted, now)):
                self._log_done(f"end {job.test} on {job.node}: {why} (job {job.number})", slurm.cancel([job]))
        busy = {job.node for job in live}
        self._unused = {name: self._unused.get(name, now) for name in slurm.held() if name not in busy}
        for name, since in self._unused.items():
            if now - since >= LEFT_SECONDS:
                self._log_done(f"give {name} back", slurm.release(name))
        for test, node in due(nodes.values(), busy, wanted, slurm.settings, now):
            if not self._log_done(f"start {test.name} on {node.name}", slurm.submit(test, node)):
                break

    def _record(self, job: TestJob, nodes: dict[str, Record]) -> None:
        """Write what a test has found to the record of its node, here and in Slurm."""
        test, node = TESTS.get(job.test), nodes.get(job.node)
        if test is None or node is None:
            return
        found = after(test, job, result_of_job(self.slurm, test, job, node), node)
        if found is not None:
            node = nodes[node.name] = replace(node, extra=with_measured(node.extra, {**node.tests, test.name: found}))
            done = self.slurm.update(node.name, extra=node.extra)
            self._log_done(
                f"{node.name}: {line_of(test.name, found.result)}", done
            )  # refused: the next round tries again

    def _open(self, node: Record) -> None:
        """Lift the drain for a test, of a node that may be another machine now: it is measured when it is idle."""
        now = self.slurm.node(node.name)
        if now is not None and now.is_drained_by_us and now.reason == node.reason:
            self._log_done(
                f"open {node.name}, which has started since it was drained: {node.reason}", opened(self.slurm, now)
            )

    def _log_done(self, what: str, done: Done) -> bool:
        """Log what was done; what was refused, only once in a row."""
        about, line = what.partition(":")[0], what if done.ok else f"cannot {what}: {done.message}"
        if done.ok or self._logged.get(about) != line:
            self.log(line)
        self._logged[about] = line
        return done.ok


def opened(slurm: TestSlurm, node: Record) -> Done:
    """Lift the drain. What has failed is not well yet, and does not drain it again either."""
    eased = {
        name: replace(found, result=replace(found.result, status=Status.WARN))
        for name, found in node.tests.items()
        if found.result.status is Status.FAIL
    }
    done = slurm.update(node.name, extra=with_measured(node.extra, {**node.tests, **eased}))
    return slurm.undrain(node.name, lifted(node.reason)) if done.ok else done


def result_of_job(slurm: TestSlurm, test: NodeTest, job: TestJob, node: Record) -> Result:
    """What a test that has ended has found."""
    return judge(test, job.comment, job.ended, slurm.settings.expected, sorted(node.features))


@dataclass(frozen=True, kw_only=True)
class ByHand:
    """One node that is measured now, because somebody has asked for it."""

    slurm: TestSlurm
    name: str
    say: Callable[[str], None]
    clock: Clock

    def measure(self) -> int:
        """Run all its tests, each of which may be slow once, and tell what is found. Returns the exit code.

        A reservation keeps it from users' jobs meanwhile. Administrators win: a drain of theirs ends this. Raises
        SlurmError.
        """
        node = self.slurm.node(self.name)
        if node is None:
            self.say(f"there is no node {self.name}")
            return REFUSED
        if node.is_closed and node.own not in TESTS:
            self.say(f"{self.name} is kept from jobs for something else, which has to be over first: {node.reason}")
            return REFUSED
        reason = node.reason if node.is_closed else ""
        if self.name in self.slurm.held():  # of one that was interrupted
            self.slurm.release(self.name)
        _done(self.slurm.hold(self.name))
        try:
            self.say(f"{self.name} takes no new jobs; its tests begin when those that run there have ended")
            if reason:
                _done(opened(self.slurm, node))
            reason = self._failure(node)
        finally:
            self._give_back(reason)
        node = self.slurm.node(self.name)
        if node is None or node.is_closed:
            self.say(f"{self.name} is {f'drained: {node.reason}' if node else 'gone'}")
            return DRAINED
        self.say(f"{self.name} takes jobs")
        return WELL

    def _give_back(self, reason: str) -> None:
        """Drain it for this reason, unless somebody has, end what still runs there, and the reservation.

        Until all of that is done: else users' jobs start on a node that is bad, or nowhere.
        """
        reminder = Reminder(self.say, self.clock)
        while True:
            try:
                node = self.slurm.node(self.name)
                if reason and node is not None and not node.is_drained:
                    _done(self.slurm.drain(self.name, reason))
                if live := [job for job in self.slurm.jobs() if job.node == self.name and not job.ended]:
                    self.slurm.cancel(live)
                if self.name in self.slurm.held():
                    _done(self.slurm.release(self.name))
            except SlurmError as error:
                reminder.waiting(f"slurmctld, to give {self.name} back: {error}")
                self.clock.sleep(HAND_POLL_SECONDS)
            else:
                return

    def _failure(self, node: Record) -> str:
        """Run all tests: the reason to drain the node, empty if there is none, or somebody has drained it."""
        for test in self.slurm.settings.fit(node):
            for is_second in (False, True):
                result = self._run(test, node)
                if result is None:
                    return ""
                self.say(line_of(test.name, result))
                if result.status is not Status.FAIL:
                    break
                if is_second:
                    return reason_for(test.name, result)
        return ""

    def _run(self, test: NodeTest, node: Record) -> Result | None:
        """One run of a test, which goes on while slurmctld is away; None: the node is drained. Raises SlurmError."""
        number = int(_done(self.slurm.submit(test, node, reservation=f"{RESERVATION}{self.name}")).partition(";")[0])
        while True:
            self.clock.sleep(HAND_POLL_SECONDS)
            try:
                job = next((job for job in self.slurm.jobs() if job.number == number), None)
                now = self.slurm.node(self.name)
            except SlurmError:
                continue
            if job is None:
                return not_checked("its job was cancelled")
            if job.ended:
                return result_of_job(self.slurm, test, job, node)
            if now is None or now.is_drained:
                return None


def _done(done: Done) -> str:
    """What a command has said. Raises SlurmError."""
    if not done.ok:
        raise SlurmError(done.message)
    return done.stdout


def _print(line: str) -> None:
    """Whoever reads this may have gone: the node is measured all the same."""
    with contextlib.suppress(OSError):
        print(line, flush=True)


def main() -> int:
    """Entry point."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(prog="health-tests", description="Runs tests of nodes as Slurm jobs.")
    parser.add_argument("--node", help="have this node measured now")
    arguments = parser.parse_args()
    log = Log("health-tests")
    path = os.environ.get("SETTINGS", "")
    settings = Settings.parse(json.loads(Path(path).read_text(encoding="utf-8")) if path else {})
    if os.getuid() == 0:
        drop_privileges(pwd.getpwnam("slurm"))
    slurm = TestSlurm(runner=run, settings=settings)
    if arguments.node:
        try:
            return ByHand(slurm=slurm, name=arguments.node, say=_print, clock=Clock()).measure()
        except SlurmError as error:
            print(f"slurmctld: {error}")
            return REFUSED
    tester = NodeTester(slurm=slurm, log=log)
    keep_looking(tester.round, POLL_SECONDS, LONGEST_POLL_SECONDS, log, Clock())
    return 0
