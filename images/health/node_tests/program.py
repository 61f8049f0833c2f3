"""health-tests: runs the tests of nodes as Slurm jobs, and writes what they find to the nodes' records.

A container beside the watcher, which drains a node that has failed; this program drains only what it has opened to
measure it (`plan.py`). It remembers nothing that is not in Slurm, and may be ended at any time: tests that run go on,
and are taken up by the next one. SETTINGS names the file of settings (`Settings`).

`--node NODE`: have one node measured now, and tell what is found (`slurmstack health test`); exit code 1 if it fails, 2
if it cannot be. Started as root it goes on as `slurm`, as root may not submit jobs.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from images.common.command import Result as Done
from images.common.command import run
from images.common.health.report import NEW_MACHINE, as_new_machine, lifted, line_of, reason_for
from images.common.health.slurm import TEST_RESERVATION, SlurmError, keep_looking
from images.common.log import Log
from images.common.process import drop_privileges, end_on_sigterm
from images.common.wait import Clock
from images.health.node_tests.catalog import TESTS, judge
from images.health.node_tests.plan import (
    NodeView,
    Settings,
    Step,
    Submit,
    TestJob,
    after,
    failed,
    left,
    step,
    submits,
    unwanted,
)
from images.health.node_tests.results import Record, encode, forgotten
from images.health.node_tests.slurm import TestSlurm

POLL_SECONDS: Final = 5.0
"""So long users wait for a test to be ended, at most."""
LONGEST_POLL_SECONDS: Final = 30.0
HAND_POLL_SECONDS: Final = 3.0
WELL, FAILS, REFUSED = 0, 1, 2
"""Exit codes of `--node`."""


@dataclass(kw_only=True)
class NodeTester:
    """Looks at all nodes and jobs, tells what has ended, and starts and ends tests; one round at a time."""

    slurm: TestSlurm
    log: Callable[[str], None]
    wall: Callable[[], float] = time.time
    """The clock that slurmctld has too."""
    _said: dict[str, str] = field(default_factory=dict)

    def round(self) -> None:
        """Look once, and act. Raises SlurmError when slurmctld does not answer."""
        slurm, settings, now = self.slurm, self.slurm.settings, self.wall()
        held, jobs, wanted = slurm.held(), slurm.jobs(), slurm.wanted_partitions()
        nodes = {node.name: node for node in slurm.nodes()}
        for job in sorted((job for job in jobs if job.ended), key=lambda job: job.began):
            self._tell(job, nodes)
        live = [job for job in jobs if not job.ended]
        for job in live:
            if why := unwanted(job, nodes, wanted, now):
                names = " and ".join(job.nodes)
                self._did(f"end {job.test} on {names}: {why} (job {job.number})", slurm.cancel([job]))
        busy = {name for job in live for name in job.nodes}
        limit = settings.max_under_test.of(len(nodes))
        for name in sorted(held | nodes.keys()):
            node = nodes.get(name)
            what = step(node, held=name in held, busy=name in busy, tests=settings.tests)
            if what is not Step.HOLD or len(busy | held) < limit:
                self._take(what, name, node, [job for job in live if name in job.nodes])
                held |= {name} if what is Step.HOLD else set()
        for wish in submits(nodes, busy | held, wanted, settings, now):
            if not self._submit(wish):
                break

    def _tell(self, job: TestJob, nodes: dict[str, NodeView]) -> None:
        """Write what a test has found to the records of its nodes, here and in Slurm."""
        test, settings = TESTS.get(job.test), self.slurm.settings
        if test is None or len(job.nodes) != test.nodes:
            return
        pools = {nodes[name].pool for name in job.nodes if name in nodes}
        own = [settings.platforms[pool] for pool in sorted(pools) if pool in settings.platforms]
        result = judge(
            test, job.comment, job.ended, settings.expected, platforms=own, infiniband=pools <= settings.infiniband
        )
        for name, record in after(test, job, result, nodes).items():
            node = nodes[name] = replace(nodes[name], records={**nodes[name].records, test.name: record})
            done = self.slurm.update(name, extra=encode(node.records, node.extra))
            self._did(f"{name}: {line_of(test.name, record.result)}", done)  # refused: the next round tries again

    def _take(self, what: Step, name: str, node: NodeView | None, jobs: Sequence[TestJob]) -> None:
        """Take a step of a node that is measured before it takes users' jobs."""
        slurm, tests, reservation = self.slurm, self.slurm.settings.tests, f"{TEST_RESERVATION}{name}"
        if what is Step.HOLD:
            self._did(f"hold {name} for the tests", slurm.hold(name))
        elif what is Step.GIVE_BACK:
            if jobs:
                slurm.cancel(jobs)
            self._did(f"give {name} back", slurm.delete_reservation(reservation))
        elif node is None or what is Step.WAIT:
            return
        elif what is Step.SUBMIT:
            self._submit(Submit(test=left(node, tests)[0], nodes=(node,)), reservation=reservation)
        elif what is Step.OPEN and self._is_as_seen(node):
            # First: an old failure would have the watcher drain it again.
            done = slurm.update(name, extra=forgotten(node.extra, self.wall()))
            done = slurm.undrain(name, lifted(node.reason)) if done.ok else done
            self._did(f"open {name} for the tests alone: {node.reason}", done)
        elif what is Step.DRAIN and self._is_as_seen(node):
            bad = failed(node, tests)
            reason = reason_for(bad, node.records[bad].result) if bad else as_new_machine("it could not be measured")
            self._did(f"drain {name}: {reason}", slurm.drain(name, reason))

    def _is_as_seen(self, seen: NodeView) -> bool:
        """Whether nobody has changed the node since. What remains is the moment between this and the change."""
        now = self.slurm.node(seen.name)
        return now is not None and all(getattr(now, a) == getattr(seen, a) for a in ("states", "reason", "reason_at"))

    def _submit(self, wish: Submit, *, reservation: str = "") -> bool:
        done = self.slurm.submit(wish, reservation=reservation)
        return self._did(f"start {wish.test.name} on {' and '.join(wish.names)}", done)

    def _did(self, what: str, done: Done) -> bool:
        """Log what was done; what was refused, only once in a row."""
        about, line = what.partition(":")[0], what if done.ok else f"cannot {what}: {done.message}"
        if done.ok or self._said.get(about) != line:
            self.log(line)
        self._said[about] = line
        return done.ok


def measured(
    slurm: TestSlurm, name: str, say: Callable[[str], None], clock: Clock, wall: Callable[[], float] = time.time
) -> int:
    """Have one node measured now, and tell what is found: `slurmstack health test NODE`. Raises SlurmError.

    The node is drained for `new-machine`, as the watcher does with one that may be another machine: so it is measured
    when its jobs have ended, and then opened, or drained with the figures. Whoever stops waiting changes nothing of
    that. Returns the exit status: well, drained for what was found (or by somebody meanwhile), or refused.
    """
    node = slurm.node(name)
    if node is None:
        say(f"there is no node {name}")
        return REFUSED
    if node.is_closed and (node.own is None or node.own.check not in {NEW_MACHINE, *TESTS}):
        say(f"{name} is kept from jobs for something else, which has to be over first: {node.reason}")
        return REFUSED
    # An old failure would have the watcher drain it for that.
    done = slurm.update(name, extra=forgotten(node.extra, wall()))
    done = slurm.drain(name, as_new_machine("measured by hand")) if done.ok else done
    if not done.ok:
        raise SlurmError(done.message)
    say(f"{name} takes no jobs until it is measured, which begins when those that run there have ended")
    told: dict[str, Record] = {}
    while True:
        clock.sleep(HAND_POLL_SECONDS)
        held = name in slurm.held()  # asked first: it is given back after the verdict
        node = slurm.node(name)
        if node is None:
            say(f"{name} is gone")
            return FAILS
        for test, record in node.records.items():
            if told.get(test) != record:
                say(line_of(test, record.result))
        told = dict(node.records)
        if not held and (node.own is None or node.own.check != NEW_MACHINE):
            say(f"{name} is drained: {node.reason}" if node.is_closed else f"{name} takes jobs")
            return FAILS if node.is_closed else WELL


def main() -> int:
    """Entry point."""
    end_on_sigterm()
    parser = argparse.ArgumentParser(prog="health-tests", description="Runs tests of nodes as Slurm jobs.")
    parser.add_argument("--node", help="have this node measured now")
    arguments = parser.parse_args()
    log = Log("health-tests")
    path = os.environ.get("SETTINGS", "")
    try:
        settings = Settings.parse(json.loads(Path(path).read_text(encoding="utf-8")) if path else {})
    except (OSError, ValueError, TypeError, AttributeError) as error:
        log.failure(f"{path} cannot be used: {error}")
        return 2
    if os.getuid() == 0:
        drop_privileges(pwd.getpwnam("slurm"))
    slurm = TestSlurm(runner=run, settings=settings)
    if arguments.node:
        try:
            return measured(slurm, arguments.node, partial(print, flush=True), Clock())
        except SlurmError as error:
            print(f"slurmctld: {error}")
            return REFUSED
    tester = NodeTester(slurm=slurm, log=log)
    keep_looking(tester.round, POLL_SECONDS, LONGEST_POLL_SECONDS, log, Clock())
    return 0
