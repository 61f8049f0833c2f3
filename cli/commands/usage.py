"""The command `usage`: who used how many CPU and GPU hours."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from cli.access.reach import reach
from cli.commands.options import ConfigOption, JsonOption
from cli.errors import USAGE, Failure
from cli.stack import open_stack
from cli.usage.plot import check_path, plot
from cli.usage.present import as_csv, as_data, print_table
from cli.usage.query import read_runs, refuse_without_accounting
from cli.usage.times import STEPS, TimeError, fitting_step, parse_time
from cli.usage.totals import DIMENSIONS, summarize

DEFAULT_PERIOD = timedelta(days=30)


def usage(
    config: ConfigOption = None,
    *,
    by: Annotated[str, typer.Option(help="account, user, or both: account,user.")] = "account",
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="First moment that counts: 2026-11-01, 2026-11-01T08:00, now-7days, today (UTC). Default: 30 days "
            "before the end.",
            show_default=False,
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Last moment, written in the same way. Default: now.", show_default=False),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(help="Also cut by time: day, week (from Monday) or month.", show_default=False),
    ] = None,
    as_json: JsonOption = False,
    as_csv_: Annotated[bool, typer.Option("--csv", help="Print CSV for spreadsheets.")] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Also write a picture of the hours over time: a .png or .svg file.",
            show_default=False,
        ),
    ] = None,
) -> None:  # fmt: skip
    """Show who used how many CPU and GPU hours.

    An hour of one CPU (or GPU) that was allocated to a job counts, whether the job made use of it or not. Jobs that are
    running count up to now. Every run of a requeued job counts. A job that crosses the start, the end or a step counts
    on each side as long as it ran there.

    The records come from slurmdbd, through sacct in the controller's pod.

    Examples:
      slurmstack usage

      slurmstack usage --by account,user --start now-7days

      slurmstack usage --start 2026-10-01 --end 2026-11-01 --csv > october.csv

      slurmstack usage --step week --start now-90days --plot usage.png
    """
    dimensions = _dimensions(by)
    if step is not None and step not in STEPS:
        raise Failure(f"--step {step!r} is none of {', '.join(STEPS)}", code=USAGE)
    if as_json and as_csv_:
        raise Failure("--json and --csv contradict each other", hint="leave out one of them", code=USAGE)
    if picture is not None:
        check_path(picture)
    first, last = _period(start, end, datetime.now(UTC))
    stack = open_stack(config)
    refuse_without_accounting(stack.config)
    namespace = stack.config.cluster.namespace
    runs = read_runs(reach(stack), namespace, first, last)
    found = summarize(runs, start=first, end=last, by=dimensions, step=step)
    if as_json:
        typer.echo(json.dumps(as_data(found, namespace=namespace), indent=1))
    elif as_csv_:
        typer.echo(as_csv(found), nl=False)
    else:
        print_table(found)
    if picture is not None:
        steps = step or fitting_step(first, last)
        drawn = summarize(runs, start=first, end=last, by=dimensions, step=steps)
        plot(drawn, picture, title=f"Usage of {namespace} by {' and '.join(dimensions)}")
        typer.echo(f"picture: {picture}", err=True)


def _dimensions(by: str) -> tuple[str, ...]:
    """`account,user` as a tuple. Raises Failure for anything else than names that are known, each once."""
    names = tuple(name.strip() for name in by.split(","))
    for name in names:
        if name not in DIMENSIONS:
            raise Failure(f"--by {by!r}: {name!r} is none of account, user", hint="both: account,user", code=USAGE)
    if len(set(names)) < len(names):
        raise Failure(f"--by {by!r} names one of them twice", code=USAGE)
    return names


def _period(start: str | None, end: str | None, now: datetime) -> tuple[datetime, datetime]:
    """The time that counts, in whole seconds. What is still to come is cut off. Raises Failure."""
    now = now.replace(microsecond=0)
    try:
        last = now if end is None else parse_time(end, now)
        first = min(last, now) - DEFAULT_PERIOD if start is None else parse_time(start, now)
    except TimeError as error:
        raise Failure(str(error), code=USAGE) from error
    if last <= first:
        raise Failure(
            f"the end, {last:%Y-%m-%dT%H:%M:%S}, is not after the start, {first:%Y-%m-%dT%H:%M:%S} (UTC)",
            hint="change --start or --end",
            code=USAGE,
        )
    if first >= now:
        raise Failure(
            f"the start, {first:%Y-%m-%dT%H:%M:%S} (UTC), is still to come", hint="change --start", code=USAGE
        )
    return first, min(last, now)
