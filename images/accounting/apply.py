"""Brings Slurm's policy in line, and back to what it was where that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from images.accounting.commands import commands, tool
from images.accounting.present import Slurm, SlurmError, UnreachableError, active_jobs, read
from images.common.policy.document import Policy, State
from images.common.policy.plan import Change, Plan, plan
from images.common.process import RefusedError
from images.common.slurm_records import nodes_in
from images.common.wait import Clock, wait_while

ROUNDS: Final = 3
"""How often the state is compared and changed at most. One is enough unless Slurm remembers values of something that
was removed long ago, or somebody else is at work."""

PROGRESS_SECONDS: Final = 2.0

NODES_SECONDS: Final = 300.0
"""How long nodes that a reservation names may take to register, after a first start above all."""


def plan_for(slurm: Slurm, present: State, policy: Policy, now: float) -> Plan:
    """What a policy changes. Slurm is asked for its jobs only where they matter."""
    planned = plan(present, policy.wanted, prune=policy.prune, now=now)
    if not any(change.action == "-" and change.kind != "reservation" for change in planned.changes):
        return planned
    return plan(present, policy.wanted, prune=policy.prune, now=now, jobs=list(active_jobs(slurm)))


@dataclass(frozen=True, kw_only=True)
class Applier:
    """One run."""

    slurm: Slurm
    log: Callable[[str], None]
    wall_time: Callable[[], float]
    clock: Clock

    def bring_in_line(self, policy: Policy) -> None:
        """Apply a policy.

        Raises RefusedError with Slurm's message when the state before is in force (or a line says why it is not), and
        UnreachableError when a daemon went away: then what is done stays, and the next run goes on from there.
        """
        before = read(self.slurm)
        planned = self._plan(before, policy)
        for line in planned.notes:
            self.log(line)
        if not planned.changes:
            self.log("nothing to change")
            return
        self._await_nodes(planned.changes)
        for line in planned.lines:
            self.log(line)
        try:
            self._converge(before, planned, policy)
        except SlurmError as error:
            self._go_back(before)
            raise RefusedError(str(error)) from error
        self.log(f"the policy is in force: {len(planned.changes)} changes")

    def _plan(self, present: State, policy: Policy) -> Plan:
        return plan_for(self.slurm, present, policy, self.wall_time())

    def _converge(self, present: State, planned: Plan, policy: Policy) -> None:
        for _ in range(ROUNDS):
            self._carry_out(planned, present)
            present = read(self.slurm)
            planned = self._plan(present, policy)
            if not planned.changes:
                return
        raise SlurmError("Slurm accepted everything, but still has something else:\n" + "\n".join(planned.lines))

    def _carry_out(self, planned: Plan, present: State) -> None:
        calls = list(commands(planned, present, self.slurm.cluster, self.wall_time()))
        said = self.clock.now()
        for number, call in enumerate(calls):
            if self.clock.now() - said >= PROGRESS_SECONDS:
                said = self.clock.now()
                self.log(f"{number} of {len(calls)} commands done")
            try:
                self.slurm.call(tool(call))
            except SlurmError as error:
                raise SlurmError(f"{error}\nwhile doing: {' '.join(call)[:500]}") from error

    def _go_back(self, before: State) -> None:
        """Make everything as it was. Reservations keep their times, whatever the clock says."""
        self.log("Slurm refused a change: going back to the policy before")
        try:
            present = read(self.slurm)
            undo = plan(present, before, prune=True, now=self.wall_time(), exact=True)
            self._carry_out(undo, present)
            left = plan(read(self.slurm), before, prune=True, now=self.wall_time(), exact=True)
        except (SlurmError, UnreachableError) as error:
            self.log(f"that failed too; the next run starts from what is there now: {error}")
            return
        if left.changes:
            self.log("not everything is as before:\n" + "\n".join(left.lines))
        else:
            self.log("the policy before is in force again")

    def _await_nodes(self, changes: Iterable[Change]) -> None:
        """A reservation needs its nodes, which may still be starting."""
        needed = [change for change in changes if change.kind == "reservation" and change.action != "-"]
        names = {name for change in needed for name in change.new["nodes"]}
        count = max((change.new["node_count"] or 0 for change in needed), default=0)
        if not names and not count:
            return

        def missing() -> str | None:
            nodes = {node.name for node in nodes_in(self.slurm.call(["scontrol", "show", "node", "--oneliner"]))}
            if absent := sorted(names - nodes):
                return f"nodes {', '.join(absent)}, which a reservation needs"
            return None if len(nodes) >= count else f"{count} nodes ({len(nodes)} are there), which a reservation needs"

        if what := wait_while(missing, self.log, poll_seconds=1.0, seconds=NODES_SECONDS, clock=self.clock):
            raise RefusedError(f"not there: {what}; nothing was changed")
