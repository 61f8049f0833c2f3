"""Commands that look for what is wrong before it costs time or money."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cli.commands.options import ConfigOption, JsonOption
from cli.errors import FAILED
from cli.stack import open_stack
from config.nebius.cloud import NebiusCloud

app = typer.Typer(help="Look for what is wrong before it costs time or money.", no_args_is_help=True)

CredentialsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Credentials file of a Nebius service account. Default: $SLURMSTACK_NEBIUS_CREDENTIALS, else "
        "$NEBIUS_IAM_TOKEN, else the profile of the `nebius` command.",
        show_default=False,
    ),
]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Profile of the `nebius` command. Default: $NEBIUS_PROFILE, else the active one.",
        show_default=False,
    ),
]


@app.callback()
def doctor() -> None:
    """Look for what is wrong before it costs time or money."""


@app.command()
def cloud(
    config: ConfigOption = None,
    *,
    as_json: JsonOption = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 unless all is fine.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for all answers together.")] = 60,
    credentials: CredentialsOption = None,
    profile: ProfileOption = None,
) -> None:
    """Ask the cloud whether the stack can be made: credentials, project, subnet, machines, quotas, capacity, ...

    Changes nothing and costs nothing. One line for each check: fine, a warning, what to change, or that the check could
    not be made, and why. Exit status 1 if anything must change.
    """
    stack = open_stack(config)
    settings = stack.config.cloud
    if not isinstance(settings, NebiusCloud):
        message = "the cluster is already there (cloud.kind: existing), so there is no cloud to ask"
        typer.echo(json.dumps({"cloud": settings.kind, "ok": True, "findings": []}) if as_json else message)
        return
    from cli.doctor.cloud import nebius, report  # noqa: PLC0415  the SDK takes a second to load

    found = nebius.diagnose(stack.config, settings, limit=timeout, credentials=credentials, profile=profile)
    if as_json:
        typer.echo(json.dumps(report.as_data(found, cloud=settings.kind), indent=1))
    else:
        report.print_findings(found)
    if report.must_change(found) or (strict and any(item.state != "fine" for item in found)):
        raise typer.Exit(FAILED)
