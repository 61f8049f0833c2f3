"""The commands `usage` and `efficiency`: who used how many CPU and GPU hours, and what jobs used of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from cli.access.reach import reach
from cli.commands.options import ConfigOption, EndOption, JsonOption, StartOption, option
from cli.stack import open_stack
from cli.text import period_of
from cli.usage import report


def usage(
    config: ConfigOption = None,
    *,
    by: Annotated[str, typer.Option(help="account, user, or both: account,user.")] = "account",
    start: StartOption = None,
    end: EndOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who used how many CPU and GPU hours.

    An hour of one CPU (or GPU) that was allocated to a job counts, whether the job made use of it or not. Jobs that are
    running count up to now. Every run of a requeued job counts. A job that crosses the start or the end counts as long
    as it ran between them.

    The records come from slurmdbd, through sacct in the controller's pod.

    Examples:
      slurmstack usage

      slurmstack usage --by account,user --start 7d

      slurmstack usage --start 2026-10-01 --end 2026-11-01 --json | jq -r '.rows[] | [.account, .cpu_hours] | @csv'
    """
    found, namespace = _report(config, report.dimensions_of(by, ("account", "user")), start, end, whole=False)
    if as_json:
        typer.echo(json.dumps(report.as_data(found, report.hours, namespace=namespace), indent=1))
    else:
        report.print_table(found, report.HOURS, report.hours)


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

      slurmstack efficiency --by user --account physics --start 7d

      slurmstack efficiency --by user,job --user alice
    """
    dimensions = report.dimensions_of(by, ("account", "user", "job"))
    found, namespace = _report(config, dimensions, start, end, whole=True, only={"user": user, "account": account})
    if as_json:
        typer.echo(json.dumps(report.as_data(found, report.efficiency, namespace=namespace), indent=1))
    else:
        report.print_table(found, report.EFFICIENCY, report.efficiency)


def _report(
    config: Path | None,
    by: Sequence[str],
    start: str | None,
    end: str | None,
    *,
    whole: bool,
    only: dict[str, str | None] | None = None,
) -> tuple[report.Report, str]:
    """The report and the cluster's namespace. `only`: what runs have to have to count."""
    now = datetime.now(UTC)
    first, last = period_of(start, end, now)
    stack = open_stack(config)
    report.refuse_without_accounting(stack.config)
    namespace = stack.config.cluster.namespace
    wanted = {(name, value) for name, value in (only or {}).items() if value is not None}
    runs = [
        run
        for run in report.read_runs(reach(stack), namespace, first, last, whole=whole)
        if all(getattr(run, name) == value for name, value in wanted)
    ]
    return report.summarize(runs, start=first, end=last, now=now, by=by), namespace
