"""Takes the steps of re-tests (`retest.py`), one for each in a round, and begins new ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from images.common.command import Result
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.outcome import news
from images.health.node_tests.plan import NodeView, Submit, TestJob
from images.health.node_tests.retest import Move, Retest, Step, due, measured, move, name_of, own
from images.health.node_tests.slurm import Ended, TestSlurm
from images.health.reason import lifted
from images.health.slurm import Reservation, SlurmError

REFUSED_SECONDS: Final = 600.0
"""For which a node is left alone after Slurm has refused its reservation, or the test in it."""


class Retester:
    """Measures nodes again that are drained for a test. All it has to know is in Slurm."""

    def __init__(
        self,
        *,
        slurm: TestSlurm,
        log: Callable[[str, str], None],
        dry_run: bool,
        wall: Callable[[], float],
    ) -> None:
        """`log`: takes what a line is about, and the line. `wall`: the clock that slurmctld has too."""
        self._slurm = slurm
        self._settings = slurm.settings
        self._log = log
        self._dry_run = dry_run
        self._wall = wall
        self._refused: dict[str, float] = {}

    def round(
        self,
        nodes: Mapping[str, NodeView],
        reservations: Sequence[Reservation],
        live: Sequence[TestJob],
        ended: Iterable[Ended],
    ) -> frozenset[str]:
        """Take a step for each re-test, and plan new ones. The nodes that are kept apart, or may be, then."""
        retests = [found for reservation in reservations if (found := own(reservation)) is not None]
        ended = list(ended)
        for retest in retests:
            node = nodes.get(retest.node)
            unread = any(_is_unread(job, retest, nodes) for job in ended)
            self._step(move(retest, node, live, TESTS, self._wall(), unread=unread), node)
        apart = {retest.node for retest in retests}
        busy = {name for job in live for name in job.nodes} | apart
        limit = self._settings.policy.max_under_test.of(len(nodes))
        names = [reservation.name for reservation in reservations]
        after, first = self._settings.retest_after, self._settings.policy.tests
        for node in measured(nodes.values(), busy, names, first):
            self._lift(node)
        for retest in due(nodes.values(), busy, names, TESTS, self._wall(), after=after, first=first):
            if len(busy) >= limit:
                break
            if self._reserve(retest, nodes[retest.node]):
                apart.add(retest.node)
                busy.add(retest.node)
        return frozenset(apart)

    def _reserve(self, retest: Retest, seen: NodeView) -> bool:
        """Keep a node apart. Whether it may be reserved now."""
        name, now = retest.node, self._wall()
        if self._dry_run:
            self._tell(retest, f"would begin: drained for {retest.reason}")
            return False
        if now < self._refused.get(name, 0.0) or not self._is_as_seen(seen):
            return False
        done = self._slurm.reserve(name_of(name), name, retest.comment)
        if done.ok:
            self._refused.pop(name, None)
            self._tell(retest, f"begins: drained for {retest.reason}")
        else:
            self._refused[name] = now + REFUSED_SECONDS
            self._tell(retest, f"cannot begin: {done.message}")
        return True

    def _lift(self, node: NodeView) -> None:
        """Of a new machine that has passed its tests."""
        about = f"new machine {node.name}"
        if self._dry_run:
            self._log(about, f"would resume {node.name}: {node.reason}")
        elif self._is_as_seen(node):
            done = self._slurm.undrain(node.name, lifted(node.reason))
            self._log(
                about, f"resume {node.name}: measured" if done.ok else f"cannot resume {node.name}: {done.message}"
            )

    def _step(self, step: Move, node: NodeView | None) -> None:
        if self._dry_run or step.step is Step.WAIT:
            return
        retest = step.retest
        if step.step is Step.CANCEL:
            self._did(retest, self._slurm.cancel(step.jobs), f"is ended: {step.why}")
        elif step.step is Step.DELETE:
            if step.jobs:
                self._slurm.cancel(step.jobs)
            self._did(retest, self._slurm.delete_reservation(retest.name), f"is over: {step.why}")
        elif node is not None and self._is_as_seen(node):
            if step.step is Step.DRAIN:
                done = self._slurm.drain(retest.node, step.reason)
                self._did(retest, done, f"drains the node again, as {step.why}: {step.reason}")
            else:
                self._begin(retest, node)

    def _begin(self, retest: Retest, node: NodeView) -> None:
        """Undrain the node, which its reservation keeps apart, and measure it."""
        done = self._slurm.undrain(retest.node, lifted(retest.reason))
        if not done.ok:
            self._did(retest, done, "")
            return
        wish = Submit(test=TESTS[retest.test], nodes=(node,), partition=node.partitions[0])
        done = self._slurm.submit(wish, reservation=retest.name)
        if not done.ok:
            self._refused[retest.node] = self._wall() + REFUSED_SECONDS
        self._did(retest, done, f"runs: job {done.stdout.strip()}")

    def _is_as_seen(self, seen: NodeView) -> bool:
        """Whether nobody has changed the node since. What remains is the moment between this and the change."""
        try:
            now = self._slurm.node(seen.name)
        except SlurmError:
            return False
        same = ("states", "reason", "reason_at")
        return now is not None and all(getattr(now, name) == getattr(seen, name) for name in same)

    def _did(self, retest: Retest, done: Result, line: str) -> None:
        """Tell what was done, or that Slurm has refused it; the next round tries again."""
        self._tell(retest, line if done.ok else f"cannot go on: {done.message}")

    def _tell(self, retest: Retest, line: str) -> None:
        self._log(f"re-test of {retest.node}", f"re-test of {retest.test} on {retest.node} {line}")


def _is_unread(job: Ended, retest: Retest, nodes: Mapping[str, NodeView]) -> bool:
    """Whether a run has ended of which the result is not on the node's record yet, and will be."""
    test = TESTS.get(job.test)
    if test is None or job.test != retest.test or job.nodes != (retest.node,):
        return False
    return bool(news(test, job.nodes, job.began, nodes))
