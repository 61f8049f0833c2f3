"""Slurm as the programs of health see it: records of nodes, jobs on them, and the few changes that are made.

Reads the output of `scontrol show nodes --json` (images/common/slurm_records.py). A record without a name or a state is
left out: what is not known is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from images.common.command import Result, Runner, run
from images.common.health.report import Finding, measured_in, parse
from images.common.slurm_node import UNKNOWN_NODE
from images.common.slurm_records import Has, NodeRecord, NotUnderstoodError, node_records
from images.common.wait import Clock, Reminder

LIST_TIMEOUT_SECONDS: Final = 20.0
"""For thousands of nodes; slurmctld may be busy."""
ASK_SECONDS: Final = 5.0
"""For a node's question about itself: a prolog waits for the answer."""
SHARE: Final = 5.0
"""A look that takes long, with thousands of nodes, is followed by a pause of this many times its length."""
RUNNING: Final = "running,suspended,configuring,stopped"
"""States of jobs that have a node, those that are ending not included."""

_DOWN: Final = frozenset({"DOWN", "ERROR"})
_CLOSED: Final = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})
_ASLEEP: Final = frozenset(
    {
        "FUTURE",
        "INVALID",
        "INVALID_REG",
        "POWERED_DOWN",
        "POWERING_DOWN",
        "POWERING_UP",
        "POWER_DOWN",
        "POWER_DRAIN",
        "POWER_UP",
        "REBOOT_ISSUED",
        "UNKNOWN",
    }
)
"""Nodes that take no job just now for a reason of Slurm's own. Draining one that is being powered up would kill its
jobs (24.11 and 26.05, `update_node`); the pod of one that sleeps is gone, and nobody misses it."""
_BUSY: Final = frozenset({"ALLOCATED", "MIXED"})


class SlurmError(Exception):
    """slurmctld did not answer, or not in a way that is understood."""


@dataclass(frozen=True, kw_only=True)
class Record(NodeRecord):
    """A node's record, and what it means here."""

    @property
    def tests(self) -> dict[str, Finding]:
        """What tests of nodes have found here the last time."""
        return measured_in(self.extra)

    is_closed = Has(*_CLOSED, *_DOWN)
    """Somebody keeps jobs from it: drained, failing or down."""
    is_down = Has(*_DOWN)
    """Slurm has given it up: it has no jobs."""
    is_asleep = Has(*_ASLEEP)
    """Slurm does not use it at present, on purpose. One that is merely silent is not asleep."""
    is_absent = Has("FUTURE", "POWERED_DOWN")
    """Whether it does not count when a limit is a part of all nodes."""
    has_jobs = Has(*_BUSY)
    """Whether jobs run on it."""

    @property
    def own(self) -> str | None:
        """The check for which the watcher has closed the node. A reason may outlive its drain."""
        return parse(self.reason) if self.is_closed and not self.states & {"FAIL", "FAILING"} else None

    @property
    def is_drained_by_us(self) -> bool:
        """Kept from jobs by a drain of the watcher, or of a check; not by a mere down, which Slurm lifts by itself."""
        return self.own is not None and "DRAIN" in self.states and not self.is_asleep

    @property
    def is_quiet(self) -> bool:
        """Whether no job is on it, not even one that is ending."""
        return not self.has_jobs and "COMPLETING" not in self.states


def parse_nodes(text: str) -> list[Record]:
    """Records in the output of `scontrol show nodes --json`. Raises SlurmError."""
    try:
        return node_records(text, Record)
    except NotUnderstoodError as error:
        raise SlurmError(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """slurmctld, through Slurm's own commands."""

    runner: Runner = run
    timeout: float = 10.0
    """Seconds, of all but lists."""

    def nodes(self) -> Sequence[Record]:
        """All records. Raises SlurmError."""
        return parse_nodes(self._ask(["scontrol", "show", "nodes", "--json"], LIST_TIMEOUT_SECONDS))

    def node(self, name: str) -> Record | None:
        """One record as it is now; None if there is none any more. Raises SlurmError."""
        try:
            records = parse_nodes(self._ask(["scontrol", "show", "node", name, "--json"], self.timeout))
        except SlurmError as error:
            if any(text in str(error) for text in UNKNOWN_NODE):
                return None
            raise
        return next((record for record in records if record.name == name), None)

    def update(self, name: str, **changes: str) -> Result:
        """Change a node's record: `reason`, `comment`, `extra`; `state=down` has its jobs start elsewhere."""
        words = [f"{key}={value}" for key, value in changes.items()]
        return self._do("scontrol", "update", f"nodename={name}", *words)

    def drain(self, name: str, reason: str) -> Result:
        """Let no new job start on it."""
        return self.update(name, state="drain", reason=reason)

    def undrain(self, name: str, reason: str) -> Result:
        """Lift a drain, and nothing else: a node that is down stays down."""
        return self.update(name, state="undrain", reason=reason)

    def jobs_of(self, name: str) -> list[str]:
        """Numbers of the jobs that run on the node. Raises SlurmError."""
        argv = ["squeue", "--noheader", f"--states={RUNNING}", f"--nodelist={name}", "--format=%A"]
        return [line.strip() for line in self._ask(argv, self.timeout).splitlines() if line.strip()]

    def requeue(self, job: str) -> Result:
        """Have a job start again, elsewhere. Slurm refuses for interactive ones and those with `--no-requeue`."""
        return self._do("scontrol", "requeue", "incomplete", job)

    def _ask(self, argv: Sequence[str], timeout: float) -> str:
        result = self.runner(list(argv), timeout=timeout)
        if not result.ok:
            raise SlurmError(result.message)
        return result.stdout

    def _do(self, *argv: str) -> Result:
        return self.runner(list(argv), timeout=self.timeout)


def keep_looking(
    look: Callable[[], object], pause: float, longest: float, log: Callable[[str], None], clock: Clock
) -> None:
    """Look for ever, with so many seconds between two looks. `look` may raise SlurmError."""
    reminder = Reminder(log, clock)
    while True:
        started = clock.now()
        try:
            look()
            reminder = Reminder(log, clock)
        except SlurmError as error:
            reminder.waiting(f"slurmctld: {error}")
        clock.sleep(min(max(pause, SHARE * (clock.now() - started)), longest))
