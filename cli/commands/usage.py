"""The command `usage`: who used how many CPU and GPU hours."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.access.reach import reach
from cli.commands.options import ConfigOption, EndOption, JsonOption, StartOption
from cli.errors import USAGE, Failure
from cli.stack import open_stack
from cli.usage.query import dimensions_of, read_runs, refuse_without_accounting
from cli.usage.report import DIMENSIONS, as_csv, as_data, print_table, summarize
from cli.usage.times import period_of


def usage(
    config: ConfigOption = None,
    *,
    by: Annotated[str, typer.Option(help="account, user, or both: account,user.")] = "account",
    start: StartOption = None,
    end: EndOption = None,
    as_json: JsonOption = False,
    as_csv_: Annotated[bool, typer.Option("--csv", help="Print CSV for spreadsheets.")] = False,
) -> None:
    """Show who used how many CPU and GPU hours.

    An hour of one CPU (or GPU) that was allocated to a job counts, whether the job made use of it or not. Jobs that are
    running count up to now. Every run of a requeued job counts. A job that crosses the start or the end counts as long
    as it ran between them.

    The records come from slurmdbd, through sacct in the controller's pod.

    Examples:
      slurmstack usage

      slurmstack usage --by account,user --start now-7days

      slurmstack usage --start 2026-10-01 --end 2026-11-01 --csv > october.csv
    """
    dimensions = dimensions_of(by, DIMENSIONS)
    if as_json and as_csv_:
        raise Failure("--json and --csv contradict each other", hint="leave out one of them", code=USAGE)
    first, last = period_of(start, end, datetime.now(UTC))
    stack = open_stack(config)
    refuse_without_accounting(stack.config)
    namespace = stack.config.cluster.namespace
    runs = read_runs(reach(stack), namespace, first, last)
    found = summarize(runs, start=first, end=last, by=dimensions)
    if as_json:
        typer.echo(json.dumps(as_data(found, namespace=namespace), indent=1))
    elif as_csv_:
        typer.echo(as_csv(found), nl=False)
    else:
        print_table(found)
