"""Commands that work on a cluster: preview, up, destroy, status, login."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from cli import engine as engines
from cli.apply import Plan, apply, explain, plan
from cli.apply import preview as compare
from cli.changes import SYMBOLS, Change
from cli.destroy import destroy_cluster, running_jobs
from cli.errors import FAILED, USAGE, Failure
from cli.kubectl import Kubectl, connect
from cli.local_commands import ensure_local_images
from cli.login import open_session
from cli.refusals import refuse_foreign, refuse_takeover
from cli.rollout import await_rollout
from cli.stack import Stack, open_stack
from cli.stack_commands import ConfigOption, JsonOption
from cli.status import print_status, read_status
from cli.verify import verify
from local.report import Report, open_report

EngineOption = Annotated[
    str, typer.Option("--engine", help="auto, pulumi or kubectl. auto takes pulumi where its command is on PATH.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_STYLES = {"create": "green", "update": "yellow", "replace": "magenta", "delete": "red"}


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command()(preview)
    app.command()(up)
    app.command()(destroy)
    app.command()(status)
    app.command()(login)


def preview(config: ConfigOption = None, *, engine: EngineOption = "auto", as_json: JsonOption = False) -> None:
    """Show what `up` would change. Objects that were changed by hand are shown too. Changes nothing."""
    stack = open_stack(config)
    if engines.choose(engine) == "pulumi":
        if not as_json:
            _print_notes(explain(connect(stack.config.cloud), stack.config, stack.sections, stack=stack.name))
        raise typer.Exit(engines.run(stack, ["preview", "--refresh", "--diff", *(["--json"] if as_json else [])]))
    kubectl = connect(stack.config.cloud)
    planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
    found = compare(kubectl, planned)
    if as_json:
        typer.echo(
            json.dumps({"changes": [asdict(change) for change in found], "notes": list(planned.leaving)}, indent=1)
        )
    else:
        _print_changes(found, planned.leaving)


def up(
    config: ConfigOption = None,
    *,
    yes: YesOption = False,
    engine: EngineOption = "auto",
    timeout: Annotated[int, typer.Option(min=1, help="Seconds to wait until everything is ready.")] = 900,
    run_srun: Annotated[
        bool, typer.Option("--verify", help="Afterwards run `srun hostname` in the jail as the first user.")
    ] = False,
) -> None:
    """Bring the cluster in line with the stack file, and wait until it is.

    Fails with Slurm's own message if Slurm rejects its new configuration; the old one then goes on. Worker nodes are
    not
    waited for: new ones join as their pods start, leaving ones wait for their jobs.
    """
    stack = open_stack(config)
    chosen = engines.choose(engine)
    report = open_report()
    ensure_local_images(report, stack.config)
    if chosen == "pulumi":
        _print_notes(explain(connect(stack.config.cloud), stack.config, stack.sections, stack=stack.name))
        code = engines.run(stack, ["up", "--refresh", *(["--yes"] if yes else [])])
        if code != 0:
            raise typer.Exit(FAILED)
    else:
        _up_with_kubectl(stack, report, yes=yes, timeout=timeout)
    if run_srun:
        verify(connect(stack.config.cloud), stack, report, timeout=timeout)


def _up_with_kubectl(stack: Stack, report: Report, *, yes: bool, timeout: int) -> None:
    kubectl = connect(stack.config.cloud)
    planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
    if yes:
        _print_notes(planned.leaving)
    elif not _agreed(kubectl, planned):
        return
    with report.step(f"Applying {len(planned.objects)} objects to namespace {planned.namespace}"):
        apply(kubectl, planned)
    with report.step("Waiting until they have taken effect") as step:
        await_rollout(
            kubectl,
            planned.objects,
            namespace=planned.namespace,
            timeout=timeout,
            tell=lambda text: step.progress(0, 0, text),
        )


def _agreed(kubectl: Kubectl, planned: Plan) -> bool:
    """Show the changes and ask. Without a terminal there is nobody to ask."""
    found = compare(kubectl, planned)
    _print_changes(found, planned.leaving)
    if not found:
        return True
    _require_terminal()
    return typer.confirm("Apply these changes?")


def _require_terminal() -> None:
    if not sys.stdin.isatty():
        raise Failure("there is no terminal to ask at", hint="look at `slurmstack preview`, then add --yes", code=USAGE)


def destroy(
    config: ConfigOption = None,
    *,
    yes: YesOption = False,
    engine: EngineOption = "auto",
    kill_jobs: Annotated[
        bool, typer.Option("--kill-jobs", help="Cancel all jobs instead of waiting for them.")
    ] = False,
) -> None:
    """Delete the cluster: jobs are waited for, then everything in its namespace goes.

    The jail and the job queue go too, unless they lie on static volumes, as those of the local cluster do. Refuses
    where
    the stack is protected (slurmstack:protect, on by default for other than the local cluster).
    """
    stack = open_stack(config)
    if stack.config.protects_data:
        raise Failure(
            "this stack is protected: destroying it deletes the jail with all users' files, and the job queue",
            hint="if that is wanted, set `slurmstack:protect: false` in the stack file, run `up`, then this again",
        )
    chosen = engines.choose(engine)
    kubectl = connect(stack.config.cloud)
    namespace = stack.config.cluster.namespace
    present = next(iter(kubectl.items("namespace", namespace)), None)
    (refuse_foreign if chosen == "pulumi" else refuse_takeover)(present)
    jobs = running_jobs(kubectl, namespace)
    if not yes:
        doing = "cancelled" if kill_jobs else "waited for"
        typer.echo(f"This deletes the cluster in namespace {namespace}. {len(jobs)} running jobs are {doing}.")
        _require_terminal()
        if not typer.confirm("Destroy it?"):
            return
    report = open_report()
    destroy_cluster(kubectl, stack.config, report, kill_jobs=kill_jobs, workers_only=chosen == "pulumi")
    if chosen == "pulumi":
        raise typer.Exit(engines.run(stack, ["destroy", "--yes"]))


def status(config: ConfigOption = None, *, as_json: JsonOption = False) -> None:
    """Show pods, Slurm nodes, the active configuration and the login address."""
    stack = open_stack(config)
    found = read_status(connect(stack.config.cloud), stack.config)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=1))
    else:
        print_status(found)
    if not found.healthy:
        raise typer.Exit(FAILED)


def login(
    user: Annotated[
        str | None, typer.Argument(help="Default: the first user of the stack file.", show_default=False)
    ] = None,
    command: Annotated[
        list[str] | None, typer.Argument(help="Command to run instead of a shell.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    *,
    key: Annotated[str | None, typer.Option("--key", "-i", help="Private SSH key file.", show_default=False)] = None,
) -> None:
    """Open an SSH session on a login node, in the jail. The host key is checked against the cluster's own."""
    stack = open_stack(config)
    raise typer.Exit(open_session(connect(stack.config.cloud), stack.config, user=user, key=key, command=command or []))


def _print_changes(found: Sequence[Change], notes: Sequence[str]) -> None:
    console = Console(highlight=False)
    for change in found:
        style = _STYLES[change.action]
        console.print(
            f"[{style}]{SYMBOLS[change.action]:>2} {change.action:7}[/] {change.kind} [bold]{escape(change.name)}[/]",
            soft_wrap=True,
        )
        for item in change.properties:
            console.print(
                f"      {escape(item.path)}: {escape(_short(item.old))} => {escape(_short(item.new))}", soft_wrap=True
            )
    counts = {action: sum(change.action == action for change in found) for action in SYMBOLS}
    told = ", ".join(f"{count} to {action}" for action, count in counts.items() if count)
    properties = sum(len(change.properties) for change in found)
    if properties:
        told += f" ({properties} changed propert{'y' if properties == 1 else 'ies'})"
    console.print(told or "no changes")
    _print_notes(notes)


def _print_notes(notes: Sequence[str]) -> None:
    for note in notes:
        Console(highlight=False).print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)


def _short(value: object) -> str:
    if value is None:
        return "(absent)"
    if isinstance(value, str) and "\n" not in value:
        return value
    text = json.dumps(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text)} characters)"
