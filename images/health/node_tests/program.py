"""health-tests: runs the tests of nodes as Slurm jobs, and writes what they find to the nodes' records.

A container beside the watcher, which drains a node that has failed: this program drains only what it has undrained, to
measure it again (`retest.py`). It remembers nothing that is not in Slurm, and may be ended at any time: tests that run
go on, and are taken up by the next one. SETTINGS names the file of settings (`settings.py`).

`--once`: one round, for tests and by hand; exit code 1 if slurmctld does not answer. `--dry-run`: change nothing, say
what would be started. Started as root it goes on as `slurm`, as root may not submit jobs.
"""

from __future__ import annotations

import argparse
import os
import pwd
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from images.common.log import Log
from images.common.process import drop_privileges, end_on_sigterm
from images.common.wait import Clock
from images.health.contract import Result, Status
from images.health.node_list import Shared
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.contract import NodeTest
from images.health.node_tests.judge import judge, parse, unheard
from images.health.node_tests.outcome import after, news, verdicts
from images.health.node_tests.plan import NodeView, Plan, Submit, plan
from images.health.node_tests.results import Record, encode
from images.health.node_tests.retester import Retester
from images.health.node_tests.settings import read
from images.health.node_tests.slurm import Ended, TestSlurm
from images.health.report import line_of
from images.health.slurm import SlurmError, keep_looking

BUSY_POLL_SECONDS: Final = 3.0
"""While tests run or wait: this is how long users may wait for one to be ended."""
POLL_SECONDS: Final = 10.0
LONGEST_POLL_SECONDS: Final = 30.0
REFUSED_SECONDS: Final = 60.0
"""For which nothing is started after Slurm has refused a test."""
MOST_SUBMITS: Final = 10
"""In one round: what changes meanwhile is seen before the rest is started."""


class NodeTester:
    """Looks at all nodes and jobs, tells what has ended, and starts and ends tests; one round at a time."""

    def __init__(
        self,
        *,
        slurm: TestSlurm,
        log: Callable[[str], None],
        dry_run: bool = False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`wall`: the clock that slurmctld has too."""
        self._slurm = slurm
        self._settings = slurm.settings
        self._log = log
        self._dry_run = dry_run
        self._wall = wall
        self._said: dict[str, str] = {}
        self._refused_until = 0.0
        self._retester = Retester(slurm=slurm, log=self._once, dry_run=dry_run, wall=wall)

    def round(self) -> bool:
        """Look once, and act. Whether tests wait or run then. Raises SlurmError when slurmctld does not answer."""
        reservations = self._slurm.reservations()
        live, ended = self._slurm.jobs()
        waiting = self._slurm.waiting(job.number for job in live)
        nodes = {node.name: node for node in self._slurm.nodes()}
        views = self._tell(nodes, ended)
        # Not with what was found just now: a re-test ends when that is in Slurm.
        retested = self._retester.round(nodes, reservations, live, ended)
        todo = plan(views.values(), live, waiting, self._settings.policy, self._wall(), retested=retested)
        self._cancel(todo)
        if self._wall() < self._refused_until:
            return bool(live or retested)
        started = [self._submit(wish) for wish in todo.submit[:MOST_SUBMITS]]
        if not self._dry_run and not all(started):
            self._refused_until = self._wall() + REFUSED_SECONDS
        return bool(live or retested) or any(started)

    def _tell(self, nodes: dict[str, NodeView], ended: list[Ended]) -> dict[str, NodeView]:
        """Write what tests have found to the records of their nodes. The nodes as they are then."""
        views = dict(nodes)
        changed: dict[str, list[str]] = {}

        def note(test: str, new: dict[str, Record]) -> None:
            for name, record in new.items():
                views[name] = replace(views[name], records={**views[name].records, test: record})
                changed.setdefault(name, []).append(test)

        for job in sorted(ended, key=lambda job: job.began):
            test = TESTS.get(job.test)
            if test is not None and len(job.nodes) == test.nodes and news(test, job.nodes, job.began, views):
                note(test.name, after(test, job.nodes, job.began, self._result(test, job, views), views))
        for test in TESTS.values():
            if test.nodes > 1:
                note(test.name, verdicts(test, views))
        for name, tests in changed.items():
            self._write(views[name], tests)
        return views

    def _result(self, test: NodeTest, job: Ended, views: dict[str, NodeView]) -> Result:
        """What a test has found."""
        said = parse(job.comment)
        if said is None:
            return unheard(job.state)
        pools = {views[name].pool for name in job.nodes if name in views}
        own = [self._settings.platforms[pool] for pool in sorted(pools) if pool in self._settings.platforms]
        infiniband = pools <= self._settings.infiniband
        return judge(test, said, self._settings.expected, platforms=own, infiniband=infiniband)

    def _write(self, node: NodeView, tests: list[str]) -> None:
        name = node.name
        for test in dict.fromkeys(tests):
            found = node.records[test].result
            told = f"ok {test}: {found.message}" if found.status is Status.OK else line_of(test, found)
            self._once(f"{name} {test}", f"{name}: {told}")
        if self._dry_run:
            return
        done = self._slurm.update(name, extra=encode(node.records, node.extra))
        if not done.ok:  # the next round tries again
            self._once(f"write {name}", f"cannot write the results of {name}: {done.message}")

    def _cancel(self, todo: Plan) -> None:
        if not todo.cancel:
            return
        for one in todo.cancel:
            names = " and ".join(one.job.nodes)
            self._once(f"cancel {names}", f"ending {one.job.test} on {names}: {one.why} (job {one.job.number})")
        if not self._dry_run:
            result = self._slurm.cancel([one.job.number for one in todo.cancel])
            if not result.ok:
                self._once("cancel", f"cannot end tests: {result.message}")

    def _submit(self, wish: Submit) -> bool:
        names = " and ".join(node.name for node in wish.nodes)
        if self._dry_run:
            self._once(f"would {names}", f"would start {wish.test.name} on {names}")
            return False
        result = self._slurm.submit(wish)
        if result.ok:
            self._log(f"started {wish.test.name} on {names}: job {result.stdout.strip()}")
        else:
            self._once("submit", f"cannot start {wish.test.name} on {names}: {result.message}")
        return result.ok

    def _once(self, about: str, line: str) -> None:
        """Log a line, unless it was the last one about this."""
        if self._said.get(about) != line:
            self._said[about] = line
            self._log(line)


def keep_testing(tester: NodeTester, log: Callable[[str], None], clock: Clock | None = None) -> None:
    """Test for ever."""

    def look() -> float:
        return BUSY_POLL_SECONDS if tester.round() else POLL_SECONDS

    keep_looking(look, BUSY_POLL_SECONDS, LONGEST_POLL_SECONDS, log, clock or Clock())


def main() -> int:
    """Entry point."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(prog="health-tests", description="Runs tests of nodes as Slurm jobs.")
    parser.add_argument("--once", action="store_true", help="one round")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, say what would be started")
    arguments = parser.parse_args()
    log = Log("health-tests")
    path = os.environ.get("SETTINGS", "")
    try:
        settings = read(Path(path) if path else None)
    except ValueError as error:
        log.failure(str(error))
        return 2
    if os.getuid() == 0:
        drop_privileges(pwd.getpwnam("slurm"))
    slurm = TestSlurm(runner=Shared(), settings=settings)
    tester = NodeTester(slurm=slurm, log=log, dry_run=arguments.dry_run)
    if not arguments.once:
        keep_testing(tester, log)
    try:
        tester.round()
    except SlurmError as error:
        log(f"slurmctld: {error}")
        return 1
    return 0
