"""policy: accounts, QOS, users, shares and limits as the stack file declares them.

`policy FILE` applies the document, or one on standard input for `-`. Where Slurm refuses a change, what is done stays,
and the next run goes on from there. `policy --plan FILE` only tells what would be done. Exit status 2:
refused, and trying again is useless; 1: something is not there yet or went away.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from images.accounting.document import Policy, State, load
from images.accounting.plan import Plan, plan
from images.accounting.sacctmgr import Slurm, SlurmError, UnreachableError, active_jobs, commands, read, slurm_env
from images.common.command import Runner, run
from images.common.process import CannotGoOnError, RefusedError, program
from images.common.wait import Clock, Reminder

ROUNDS: Final = 3
"""How often the state is compared and changed at most. One is enough unless Slurm remembers values of something that
was removed long ago, or somebody else is at work."""

PROGRESS_SECONDS: Final = 2.0

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


def plan_for(slurm: Slurm, present: State, policy: Policy) -> Plan:
    """What a policy changes. Slurm is asked for its jobs only where they matter."""
    planned = plan(present, policy.wanted, prune=policy.prune)
    if not any(change.action == "-" for change in planned.changes):
        return planned
    return plan(present, policy.wanted, prune=policy.prune, jobs=list(active_jobs(slurm)))


def bring_in_line(slurm: Slurm, policy: Policy, log: Callable[[str], None], clock: Clock) -> None:
    """Apply a policy. Raises SlurmError, or UnreachableError when a daemon went away."""
    present = read(slurm)
    planned = plan_for(slurm, present, policy)
    for line in (*planned.notes, *planned.lines):
        log(line)
    if not planned.changes:
        log("nothing to change")
        return
    count = len(planned.changes)
    for _ in range(ROUNDS):
        carry_out(slurm, planned, present, log, clock)
        present = read(slurm)
        planned = plan_for(slurm, present, policy)
        if not planned.changes:
            log(f"the policy is in force: {count} changes")
            return
    raise SlurmError("Slurm accepted everything, but still has something else:\n" + "\n".join(planned.lines))


def carry_out(slurm: Slurm, planned: Plan, present: State, log: Callable[[str], None], clock: Clock) -> None:
    """Make all calls of a plan."""
    calls = list(commands(planned, present, slurm.cluster))
    logged_at = clock.now()
    for number, call in enumerate(calls):
        if clock.now() - logged_at >= PROGRESS_SECONDS:
            logged_at = clock.now()
            log(f"{number} of {len(calls)} commands done")
        try:
            slurm.call(["sacctmgr", "--immediate", *call])  # which does not ask
        except SlurmError as error:
            raise SlurmError(f"{error}\nwhile doing: {' '.join(call)[:500]}") from error


def main(arguments: Sequence[str] | None = None, *, runner: Runner = run, clock: Clock | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="policy", description="Applies a policy document to Slurm.")
    parser.add_argument("document", metavar="FILE", help="the document; - for standard input")
    parser.add_argument("--plan", action="store_true", help="only tell what would be done, as JSON")
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
                    show_plan(slurm, policy)
                else:
                    bring_in_line(slurm, policy, log, clock)
        except (ValueError, SlurmError) as error:
            raise RefusedError(str(error)) from error
        except UnreachableError as error:
            raise CannotGoOnError(
                f"a daemon went away; what is done stays, and the next try goes on from there: {error}"
            ) from error


def show_plan(slurm: Slurm, policy: Policy) -> None:
    """Print what applying would do, as JSON with the lists `changes` and `notes`."""
    planned = plan_for(slurm, read(slurm), policy)
    print(json.dumps({"changes": planned.lines, "notes": list(planned.notes)}, indent=1))
