"""The command `efficiency`: what jobs used of what they asked for."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.access.reach import reach
from cli.commands.options import ConfigOption, EndOption, JsonOption, StartOption, option
from cli.efficiency.report import DIMENSIONS, as_data, print_table, summarize
from cli.stack import open_stack
from cli.usage.query import ask_sacct, dimensions_of, refuse_without_accounting
from cli.usage.times import period_of
from images.common.slurm_runs import runs_between


def efficiency(
    config: ConfigOption = None,
    *,
    by: Annotated[str, typer.Option(help="account, user or job, or several: account,user.")] = "account",
    start: StartOption = None,
    end: EndOption = None,
    user: Annotated[str | None, option(metavar="NAME", help="Only jobs of this user.")] = None,
    account: Annotated[str | None, option(metavar="NAME", help="Only jobs booked on this account.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what jobs used of what they asked for, and what was wasted.

    CPU H are the CPU hours that jobs were given, USED is the CPU time of their processes, and WASTED what is between.
    GIB H are the GiB of memory that they were given, for their time; MEM % is how much of it the most was that they had
    at once. The largest waste comes first.

    A job that Slurm did not measure is `-`, never 0: it still runs, its node was lost, or it was shorter than the 30
    seconds between two looks at its memory. What GPUs did is not recorded. Of one job `seff` on a login node tells.

    Examples:
      slurmstack efficiency

      slurmstack efficiency --by user --account physics --start now-7days

      slurmstack efficiency --by user,job --user alice
    """
    dimensions = dimensions_of(by, DIMENSIONS)
    now = datetime.now(UTC)
    first, last = period_of(start, end, now)
    stack = open_stack(config)
    refuse_without_accounting(stack.config)
    kubectl, namespace = reach(stack), stack.config.cluster.namespace
    found = summarize(
        (
            job
            for job in ask_sacct(kubectl, namespace, runs_between(first, last, whole=True))
            if user in {None, job.user} and account in {None, job.account}
        ),
        start=first, end=last, now=now, by=dimensions,
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(as_data(found, namespace=namespace), indent=1))
    else:
        print_table(found)
