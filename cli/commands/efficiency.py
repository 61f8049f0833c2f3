"""The command `efficiency`: what jobs used of what they asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.access.reach import reach
from cli.commands.options import ConfigOption, CsvOption, EndOption, JsonOption, StartOption, argument, option
from cli.efficiency.report import (
    DIMENSIONS,
    as_csv,
    as_data,
    job_as_data,
    jobs_as_csv,
    print_job,
    print_table,
    summarize,
)
from cli.errors import USAGE, Failure
from cli.kubectl.client import Kubectl
from cli.stack import open_stack
from cli.usage.query import ask_sacct, dimensions_of, refuse_both, refuse_without_accounting
from cli.usage.times import period_of
from images.common.slurm_runs import Run, parse_runs, runs_between, runs_named

MOST_ALONE = 3
"""Jobs that are shown one after the other. More of them, as of an array, are a table."""

_JOB = re.compile(r"\d+([_+]\d+)?")


def efficiency(
    jobs: Annotated[
        list[str] | None, argument(metavar="JOB", help="Show these jobs, however old. Default: a table.")
    ] = None,
    config: ConfigOption = None,
    *,
    by: Annotated[str | None, option(help="account, user or job, or several: account,user. Default: account.")] = None,
    start: StartOption = None,
    end: EndOption = None,
    user: Annotated[str | None, option(metavar="NAME", help="Only jobs of this user.")] = None,
    account: Annotated[str | None, option(metavar="NAME", help="Only jobs booked on this account.")] = None,
    as_json: JsonOption = False,
    as_csv_: CsvOption = False,
) -> None:
    """Show what jobs used of what they asked for, and what was wasted.

    CPU H are the CPU hours that jobs were given, USED is the CPU time of their processes, and WASTED what is between.
    GIB H are the GiB of memory that they were given, for their time; MEM % is how much of it the most was that they had
    at once. The largest waste comes first.

    A job that Slurm did not measure is `-` or `unknown`, never 0: it still runs, its node was lost, or it was shorter
    than the 30 seconds between two looks at its memory. What GPUs did is not recorded.

    Examples:
      slurmstack efficiency

      slurmstack efficiency --by user --account physics --start now-7days

      slurmstack efficiency --by user,job --user alice

      slurmstack efficiency 1234 1240_7
    """
    refuse_both(as_json=as_json, as_csv=as_csv_)
    if jobs:
        _refuse_for_jobs(jobs, {"--by": by, "--start": start, "--end": end, "--user": user, "--account": account})
    dimensions = dimensions_of(by or "account", DIMENSIONS)
    now = datetime.now(UTC)
    first, last = period_of(start, end, now)
    stack = open_stack(config)
    refuse_without_accounting(stack.config)
    kubectl, namespace = reach(stack), stack.config.cluster.namespace
    if jobs:
        _show_jobs(read_named(kubectl, namespace, jobs), namespace, now=now, as_json=as_json, as_csv_=as_csv_)
        return
    found = summarize(
        (
            job
            for job in ask_sacct(kubectl, namespace, runs_between(first, last, whole=True), parse_runs)
            if user in {None, job.user} and account in {None, job.account}
        ),
        start=first, end=last, now=now, by=dimensions,
    )  # fmt: skip
    if as_json:
        typer.echo(json.dumps(as_data(found, namespace=namespace), indent=1))
    elif as_csv_:
        typer.echo(as_csv(found), nl=False)
    else:
        print_table(found)


def _refuse_for_jobs(jobs: Sequence[str], options: dict[str, str | None]) -> None:
    """Raises Failure for what is no job, and for options that choose others."""
    for job in jobs:
        if _JOB.fullmatch(job) is None:
            hint = "write 12, 12_3 for a task of an array, or 12+1 for a part of a heterogeneous job"
            raise Failure(f"{job!r} is not the number of a job", hint=hint, code=USAGE)
    given = [name for name, value in options.items() if value is not None]
    if given:
        message = f"{', '.join(given)}: jobs are named already"
        raise Failure(message, hint="leave out the jobs or the options", code=USAGE)


def read_named(kubectl: Kubectl, namespace: str, jobs: Sequence[str]) -> list[Run]:
    """Records of these jobs; of all tasks of an array, if it is named. Raises Failure if one has none."""
    found = ask_sacct(kubectl, namespace, runs_named(jobs), parse_runs)
    names = {name for job in found for name in (job.job, job.number, re.split("[_+]", job.job)[0])}
    missing = [job for job in jobs if job not in names]
    if missing:
        raise Failure(
            f"there are no records of {', '.join(missing)}",
            hint="records are kept as long as accounting.retention.jobs in the stack file says",
        )
    return found


def _show_jobs(jobs: Sequence[Run], namespace: str, *, now: datetime, as_json: bool, as_csv_: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"namespace": namespace, "jobs": [job_as_data(job) for job in jobs]}, indent=1))
    elif as_csv_:
        typer.echo(jobs_as_csv(jobs), nl=False)
    elif len(jobs) > MOST_ALONE and (begun := [job.start for job in jobs if job.start is not None]):
        first = datetime.fromtimestamp(min(begun), UTC)
        print_table(summarize(jobs, start=first, end=now, now=now, by=("job",)))
    else:
        for number, job in enumerate(jobs):
            if number:
                typer.echo()
            print_job(job)
