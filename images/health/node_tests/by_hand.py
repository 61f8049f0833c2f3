"""`slurmstack health test NODE`: have one node measured now, and tell what is found.

The node is drained for `new-machine`, as the watcher does with one that may be another machine: so it is measured when
its jobs have ended, and then opened, or drained with the figures. Whoever stops waiting changes nothing of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from images.common.health.report import NEW_MACHINE, as_new_machine, line_of
from images.common.health.slurm import SlurmError
from images.common.wait import Clock
from images.health.node_tests.catalog import TESTS
from images.health.node_tests.results import Record, forgotten
from images.health.node_tests.slurm import TestSlurm

POLL_SECONDS: Final = 3.0
WELL, FAILS, REFUSED = 0, 1, 2


def measured(
    slurm: TestSlurm, name: str, say: Callable[[str], None], clock: Clock, wall: Callable[[], float] = time.time
) -> int:
    """The exit status: well, drained for what was found (or by somebody meanwhile), or refused. Raises SlurmError."""
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
        clock.sleep(POLL_SECONDS)
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
