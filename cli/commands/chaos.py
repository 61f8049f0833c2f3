"""The command `chaos`."""

from __future__ import annotations

import json
import secrets
import sys
from typing import Annotated

import typer

from cli.access.reach import reach, whereabouts
from cli.backup.restore import refuse_restoring
from cli.change.lock import held
from cli.change.owner import require_own
from cli.chaos.run import Chaos, allowed, plan, shown, text
from cli.commands.options import ConfigOption, JsonOption, option
from cli.errors import FAILED, INTERRUPTED, USAGE, Failure, Refused
from cli.stack import Stack, open_stack
from config.errors import unknown_name
from local.report import PlainReport
from slurm.names import DATABASE, ELASTIC


def chaos(
    config: ConfigOption = None,
    *,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, help="The same gives the same faults.", show_default="a random one")
    ] = None,
    minutes: Annotated[float, typer.Option("--minutes", min=0.5, max=1440, help="How long.")] = 4,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="PART",
            help="What may be hit: controller, slurmdbd, database, login, elastic, worker; may be repeated.",
            show_default="all but worker",
        ),
    ] = None,
    user: Annotated[str, option("--user", help="Who submits. Default: the first of the stack file.")] = "",
    partition: Annotated[str, option("--partition", help="Where the jobs run.")] = "",
    rate: Annotated[float, typer.Option("--rate", min=0.1, max=50, help="Jobs in a second at most.")] = 3,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the faults, and do nothing.")] = False,
    yes_on: Annotated[
        str, option("--yes-on", metavar="STACK", help="Name of a protected stack, which is refused without it.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Break the cluster on purpose while a user submits small jobs, and see whether each has run exactly once.

    Pods are deleted, with and without a goodbye, and main processes ended. What is broken mends itself: pods come back.
    People who work on the cluster meanwhile notice it: commands wait, sessions on a login node that is hit end, and
    everybody's jobs on a worker, if you allow those. Ctrl-C ends it early, with a report.

    Each job writes when it begins and ends, into a directory of the user that is removed afterwards; accounting must
    agree. A job that Slurm has queued again counts as such where Slurm says so.

    Exit status: 0; 1 if an accepted job was lost, ran twice, or is not in accounting, still waits after five minutes,
    or if none ran at all; 3 if the stack is protected.

    Examples:
      slurmstack chaos --seed 7 --minutes 10 --dry-run

      slurmstack chaos --seed 7 --minutes 10 --allow controller,slurmdbd
    """
    stack = open_stack(config)
    chosen = seed if seed is not None else secrets.randbelow(1_000_000)
    parts = [part for part in allowed(allow or ()) if _is_there(stack, part)]
    if not parts:
        raise Failure(f"this stack has nothing of {', '.join(allow or ())} that chaos could break", code=USAGE)
    faults = plan(chosen, minutes * 60, parts, controllers=stack.config.controller.replicas)
    if dry_run:
        as_data = [{"at": fault.at, "component": fault.component, "kind": fault.kind} for fault in faults]
        typer.echo(
            json.dumps({"seed": chosen, "faults": as_data}, indent=1) if as_json else f"seed {chosen}\n{shown(faults)}"
        )
        return
    who = _submitter(stack, user)
    _refuse_unasked(stack, yes_on)
    kubectl, report = reach(stack), PlainReport(sys.stderr)
    require_own(stack, kubectl)
    refuse_restoring(kubectl, stack.config.cluster.namespace)
    where = whereabouts(stack, kubectl)
    report.info(f"seed {chosen}: {', '.join(parts)} of {where} are broken on purpose for {minutes:g} minutes")
    options = [f"--partition={partition}"] if partition else []
    with held(kubectl, stack.config.cluster.namespace, "chaos", report):
        refuse_restoring(kubectl, stack.config.cluster.namespace)  # which may have been waited for
        outcome = Chaos(kubectl, stack, report, user=who).run(
            faults, minutes * 60, seed=chosen, rate=rate, options=options
        )
    typer.echo(json.dumps(outcome.as_data(), indent=1) if as_json else text(outcome))
    if not outcome.ok:
        raise typer.Exit(FAILED)
    if outcome.interrupted:
        raise typer.Exit(INTERRUPTED)


def _is_there(stack: Stack, part: str) -> bool:
    config = stack.config
    if part == DATABASE:
        return config.accounting.own_database is not None
    return part != ELASTIC or config.has_elastic_pools


def _submitter(stack: Stack, user: str) -> str:
    """Who submits. Raises Failure where the stack has nobody, no login node, or no records."""
    users = stack.config.users
    if user and user not in users:
        raise Failure(unknown_name(user, users, what="a user of the stack file"), code=USAGE)
    if not users or not stack.config.login.size or not stack.config.accounting.enabled:
        raise Failure("this takes a user of the stack file, a login node, and accounting", code=USAGE)
    return user or next(iter(users))


def _refuse_unasked(stack: Stack, yes_on: str) -> None:
    if yes_on and yes_on != stack.name:
        raise Failure(f"--yes-on {yes_on}: this is the stack {stack.name} ({stack.file})", code=USAGE)
    if stack.config.protects_data and not yes_on:
        raise Refused(
            "this stack is protected (slurmstack:protect), and chaos would break parts of it while people work there",
            hint=f"--dry-run shows what; --yes-on {stack.name} does it",
        )
