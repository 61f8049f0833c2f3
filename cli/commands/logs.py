"""The command `logs`: what was written about a component or a job."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from cli.access.reach import reach
from cli.commands.options import ConfigOption, argument, option
from cli.errors import USAGE, Failure
from cli.logs.gather import gather
from cli.logs.lines import LISTED, in_order, print_lines
from cli.stack import open_stack
from cli.status.snapshot import JOB
from cli.text import parse_time, plain


def logs(
    component: Annotated[
        str | None,
        argument(
            metavar="COMPONENT",
            help="A component (controller, login, worker, health-watch, rest, database, ...), a container (slurmctld, "
            "config-agent, slurmdbd, munged, sshd, ...), a pool or a pod. Default: all.",
        ),
    ] = None,
    config: ConfigOption = None,
    *,
    job: Annotated[
        str | None, option("--job", metavar="ID", help="What is about this job: 12, or 12_3 (array).")
    ] = None,
    since: Annotated[
        str | None,
        option(
            metavar="TIME",
            help="30m, 1h, 2d (ago), or a moment in UTC: 2026-11-01T08:00, today. Default: 1h; of a job, its life.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each line as a JSON object.")] = False,
) -> None:
    """Print what the programs of the cluster wrote, all or about a component or a job, in the order of time.

    Each line is TIME COMPONENT(POD/CONTAINER) TEXT. The times are in UTC; one without milliseconds is known to the
    second only, and stands at its end. What containers wrote before their last restart is there, too. What cannot be
    read is said on standard error, and the rest is printed all the same.

    --job has lines of slurmctld, slurmdbd, the watcher and the job's nodes (prolog and epilog too) that name it, and
    from sacct when it was submitted, started and ended, with its steps. If it failed, errors of Slurm's commands and of
    its shell in its output are at its end.

    Logs of pods that are gone are gone with them. `kubectl logs -f` prints what is written from now on, and
    `kubectl get events` what Kubernetes tells of pods.

    Examples:
      slurmstack logs --job 1234

      slurmstack logs gpu-3 --since 2d

      slurmstack logs slurmctld --since 30m | grep error

      slurmstack logs --since 5m --json | jq -r .text
    """
    if component is not None and job is not None:
        raise Failure("COMPONENT and --job contradict each other", hint="leave out one of them", code=USAGE)
    if job is not None and not re.fullmatch(JOB, job):
        raise Failure(f"--job {job!r} is no number of a job", hint="12, or 12_3 for a task of an array", code=USAGE)
    now = datetime.now(UTC)
    first = None if since is None else parse_time(since, now)
    if first is None and job is None:
        first = now - timedelta(hours=1)
    stack = open_stack(config)
    accounting, namespace = stack.config.accounting.enabled, stack.config.cluster.namespace
    found = gather(reach(stack), namespace, now, component=component, job=job, since=first, accounting=accounting)
    lines = in_order(found.lines, since=first)
    for why in found.missing[:LISTED]:
        typer.echo(f"not read: {plain(why)}", err=True)
    if found.missing[LISTED:]:
        typer.echo(f"not read: {len(found.missing) - LISTED} more", err=True)
    print_lines(lines, as_json=as_json)
    if not lines:
        typer.echo("nothing was written in that time; --since goes further back", err=True)
