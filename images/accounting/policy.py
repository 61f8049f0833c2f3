"""policy: accounts, QOS, users, shares, limits and reservations as the stack file declares them.

`policy FILE` applies the document, or one on standard input for `-`. Where Slurm refuses a change, what is done stays,
and the next run goes on from there. `policy --plan [--json] FILE` only tells what would be done. Exit status 2:
refused, and trying again is useless; 1: something is not there yet or went away.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from images.accounting.sacctmgr import Slurm, SlurmError, UnreachableError, active_jobs, commands, read, slurm_env
from images.common.command import Runner, run
from images.common.policy.document import Policy, State, load
from images.common.policy.plan import Change, Plan, plan
from images.common.process import CannotGoOnError, RefusedError, program
from images.common.slurm_records import nodes_in
from images.common.wait import Clock, Reminder, wait_while

ROUNDS: Final = 3
"""How often the state is compared and changed at most. One is enough unless Slurm remembers values of something that
was removed long ago, or somebody else is at work."""

PROGRESS_SECONDS: Final = 2.0

NODES_SECONDS: Final = 300.0
"""How long nodes that a reservation names may take to register, after a first start above all."""


WAIT_SECONDS: Final = 600.0
"""How long slurmdbd and slurmctld may take to answer. On a first start they pull images meanwhile."""

PLAN_WAIT_SECONDS: Final = 5.0
"""The same for a plan, which somebody waits for."""


def await_slurm(slurm: Slurm, log: Callable[[str], None], clock: Clock, seconds: float) -> None:
    """Return when both daemons answer and know each other. Raises RefusedError after the time, with Slurm's words."""
    deadline = clock.now() + seconds
    reminder = Reminder(log, clock)
    while True:
        try:
            if slurm.has_cluster():
                slurm.call(["scontrol", "show", "reservation", "--oneliner"])
                return
            why = f"slurmctld has not introduced the cluster {slurm.cluster!r} to slurmdbd yet"
        except (UnreachableError, SlurmError) as error:
            why = str(error)
        if clock.now() >= deadline:
            raise RefusedError(
                f"slurmdbd and slurmctld cannot be used after {seconds:g} s; nothing was changed:\n{why}"
            )
        reminder.waiting("slurmdbd and slurmctld")
        clock.sleep(0.5)


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
        """Apply a policy. Raises SlurmError, or UnreachableError when a daemon went away."""
        before = read(self.slurm)
        planned = plan_for(self.slurm, before, policy, self.wall_time())
        for line in planned.notes:
            self.log(line)
        if not planned.changes:
            self.log("nothing to change")
            return
        self._await_nodes(planned.changes)
        for line in planned.lines:
            self.log(line)
        self._converge(before, planned, policy)
        self.log(f"the policy is in force: {len(planned.changes)} changes")

    def _converge(self, present: State, planned: Plan, policy: Policy) -> None:
        for _ in range(ROUNDS):
            self._carry_out(planned, present)
            present = read(self.slurm)
            planned = plan_for(self.slurm, present, policy, self.wall_time())
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
                # sacctmgr must not ask.
                self.slurm.call(call if call[0] == "scontrol" else ["sacctmgr", "--immediate", *call])
            except SlurmError as error:
                raise SlurmError(f"{error}\nwhile doing: {' '.join(call)[:500]}") from error

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


def main(arguments: Sequence[str] | None = None, *, runner: Runner = run, clock: Clock | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="policy", description="Applies a policy document to Slurm.")
    parser.add_argument("document", metavar="FILE", help="the document; - for standard input")
    parser.add_argument("--plan", action="store_true", help="only tell what would be done")
    parser.add_argument("--json", action="store_true", help="with --plan: as JSON")
    options, clock = parser.parse_args(arguments), clock or Clock()
    with program("policy", sys.stderr if options.plan else None) as log:
        try:
            text = sys.stdin.read() if options.document == "-" else Path(options.document).read_text(encoding="utf-8")
            policy = load(text)
        except (OSError, ValueError) as error:
            raise RefusedError(str(error)) from error
        try:
            with slurm_env() as env:
                slurm = Slurm(runner=partial(runner, env=env), cluster=env["CLUSTER_NAME"])
                await_slurm(slurm, log, clock, PLAN_WAIT_SECONDS if options.plan else WAIT_SECONDS)
                if options.plan:
                    show_plan(slurm, policy, as_json=options.json)
                else:
                    Applier(slurm=slurm, log=log, wall_time=time.time, clock=clock).bring_in_line(policy)
        except (ValueError, SlurmError) as error:
            raise RefusedError(str(error)) from error
        except UnreachableError as error:
            raise CannotGoOnError(
                f"a daemon went away; what is done stays, and the next try goes on from there: {error}"
            ) from error


def show_plan(slurm: Slurm, policy: Policy, *, as_json: bool) -> None:
    """Print what applying would do, as lines or as JSON with the lists `changes` and `notes`."""
    planned = plan_for(slurm, read(slurm), policy, time.time())
    if as_json:
        print(json.dumps({"changes": planned.lines, "notes": list(planned.notes)}, indent=1))
    else:
        for line in (*planned.lines, *planned.notes):
            print(line)
