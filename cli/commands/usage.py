"""The commands `usage` and `efficiency`: who used how many CPU and GPU hours, and what jobs used of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cli.access.reach import reach
from cli.commands.options import ConfigOption, EndOption, JsonOption, StartOption
from cli.errors import USAGE, Failure
from cli.stack import open_stack
from cli.text import period_of
from cli.usage import report as usage_report


def usage(
    config: ConfigOption = None,
    *,
    by: Annotated[str, typer.Option(help="account, user, or both: account,user.")] = "account",
    start: StartOption = None,
    end: EndOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV for spreadsheets.")] = False,
) -> None:
    """Show who used how many CPU and GPU hours.

    An hour of one CPU (or GPU) that was allocated to a job counts, whether the job made use of it or not. Jobs that are
    running count up to now. Every run of a requeued job counts. A job that crosses the start or the end counts as long
    as it ran between them.

    The records come from slurmdbd, through sacct in the controller's pod.

    Examples:
      slurmstack usage

      slurmstack usage --by account,user --start 7d

      slurmstack usage --start 2026-10-01 --end 2026-11-01 --csv > october.csv
    """
    if as_json and as_csv:
        raise Failure("--json and --csv contradict each other", hint="leave out one of them", code=USAGE)
    dimensions = usage_report.dimensions_of(by, ("account", "user"))
    _print(config, dimensions, (start, end), usage_report.HOURS, usage_report.hours, as_json=as_json, as_csv=as_csv)


def efficiency(
    config: ConfigOption = None,
    *,
    by: Annotated[str, typer.Option(help="account, user or job, or several: account,user.")] = "account",
    start: StartOption = None,
    end: EndOption = None,
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

      slurmstack efficiency --by account,user --start 7d

      slurmstack efficiency --by user,job | grep alice
    """
    dimensions = usage_report.dimensions_of(by, ("account", "user", "job"))
    _print(config, dimensions, (start, end), usage_report.EFFICIENCY, usage_report.efficiency, as_json=as_json)


def _print(
    config: Path | None,
    by: tuple[str, ...],
    period: tuple[str | None, str | None],
    columns: Mapping[str, str],
    numbers: usage_report.Numbers,
    *,
    as_json: bool,
    as_csv: bool = False,
) -> None:
    """The report on a period. Steps are read where it is asked what they used."""
    now = datetime.now(UTC)
    first, last = period_of(*period, now)
    stack = open_stack(config)
    usage_report.refuse_without_accounting(stack.config)
    namespace, whole = stack.config.cluster.namespace, numbers is usage_report.efficiency
    runs = usage_report.read_runs(reach(stack), namespace, first, last, whole=whole)
    found = usage_report.summarize(runs, start=first, end=last, now=now, by=by)
    if as_json:
        typer.echo(json.dumps(usage_report.as_data(found, numbers, namespace=namespace), indent=1))
    elif as_csv:
        typer.echo(usage_report.as_csv(found, numbers), nl=False)
    else:
        usage_report.print_table(found, columns, numbers)
