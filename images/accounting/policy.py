"""policy: accounts, QOS, users, shares, limits and reservations as the stack file declares them.

`policy FILE` applies the document, or one on standard input for `-`. `policy --plan [--json] FILE` only tells what that
would do. Exit status 2: refused, and trying again is useless; 1: something is not there yet or went away.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from images.accounting import client_conf
from images.accounting.apply import Applier, plan_for
from images.accounting.present import Slurm, SlurmError, UnreachableError, read
from images.common.command import Runner, run
from images.common.log import Log
from images.common.policy.document import Policy, load
from images.common.process import CannotGoOnError, RefusedError, program
from images.common.wait import Clock, Reminder

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


def show_plan(slurm: Slurm, policy: Policy, *, as_json: bool) -> str:
    """What applying would do, as lines or as JSON with the lists `changes` and `notes`."""
    planned = plan_for(slurm, read(slurm), policy, time.time())
    if as_json:
        return json.dumps({"changes": planned.lines, "notes": list(planned.notes)}, indent=1)
    return "\n".join([*planned.lines, *planned.notes])


def main(arguments: Sequence[str] | None = None, *, runner: Runner = run, clock: Clock | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="policy", description="Applies a policy document to Slurm.")
    parser.add_argument("document", metavar="FILE", help="the document; - for standard input")
    parser.add_argument("--plan", action="store_true", help="only tell what would be done")
    parser.add_argument("--json", action="store_true", help="with --plan: as JSON")
    options = parser.parse_args(arguments)
    with program("policy", sys.stderr if options.plan else None) as log:
        try:
            text = sys.stdin.read() if options.document == "-" else Path(options.document).read_text(encoding="utf-8")
            policy = load(text)
        except (OSError, ValueError) as error:
            raise RefusedError(str(error)) from error
        try:
            with client_conf.slurm_env(os.environ) as env:
                slurm = Slurm(runner=partial(runner, env=env), cluster=env["CLUSTER_NAME"])
                _work(slurm, policy, log, clock or Clock(), options)
        except (ValueError, SlurmError) as error:
            raise RefusedError(str(error)) from error
        except UnreachableError as error:
            raise CannotGoOnError(
                f"a daemon went away; what is done stays, and the next try goes on from there: {error}"
            ) from error


def _work(slurm: Slurm, policy: Policy, log: Log, clock: Clock, options: argparse.Namespace) -> None:
    await_slurm(slurm, log, clock, PLAN_WAIT_SECONDS if options.plan else WAIT_SECONDS)
    if not options.plan:
        Applier(slurm=slurm, log=log, wall_time=time.time, clock=clock).bring_in_line(policy)
    elif said := show_plan(slurm, policy, as_json=options.json):
        sys.stdout.write(f"{said}\n")
