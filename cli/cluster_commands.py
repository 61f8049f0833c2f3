"""Commands that work on a cluster: preview, up, destroy, status, login, kubeconfig."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from cli import engine as engines
from cli import policy as policies
from cli.against import Comparison, against_state, refuse, removal
from cli.apply import Plan, apply, explain, plan
from cli.apply import preview as compare
from cli.changes import SYMBOLS, Change, short
from cli.destroy import destroy_cluster, running_jobs
from cli.effects import Effect
from cli.errors import FAILED, USAGE, Failure
from cli.kubectl import Kubectl
from cli.local_commands import ensure_local_images
from cli.login import open_session
from cli.manifests import refuse_cloud_resources
from cli.reach import keep_kubeconfig, kubeconfig_of, reach, write_private
from cli.recording import record
from cli.refusals import refuse_foreign, refuse_takeover, refuse_unreachable_images
from cli.rollout import await_rollout
from cli.stack import Stack, open_stack
from cli.stack_commands import ConfigOption, JsonOption
from cli.status import print_status, read_status
from cli.summary import as_data, print_effects, print_summary, summarize
from cli.verify import verify
from config.nebius import NebiusCloud
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
    app.command()(kubeconfig)


def _choose(stack: Stack, engine: str) -> str:
    """The engine for a stack. Raises Failure where kubectl would have to make what only Pulumi can."""
    chosen = engines.choose(engine)
    if chosen == "kubectl" and isinstance(stack.config.cloud, NebiusCloud):
        refuse_cloud_resources(record(stack.sections, stack=stack.name))
    return chosen


def preview(config: ConfigOption = None, *, engine: EngineOption = "auto", as_json: JsonOption = False) -> None:
    """Show what `up` would change. Objects that were changed by hand are shown too. Changes nothing."""
    stack = open_stack(config)
    if _choose(stack, engine) == "pulumi":
        raise typer.Exit(_preview_with_pulumi(stack, as_json=as_json))
    kubectl = reach(stack)
    planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
    found = compare(kubectl, planned)
    summary = summarize(stack.config)
    policy = policies.planned_policy(kubectl if planned.exists else None, stack.config)
    if as_json:
        changes = [asdict(change) for change in found]
        document = {"changes": changes, "notes": list(planned.leaving), "summary": as_data(summary)}
        typer.echo(json.dumps(document | {"policy": policies.as_data(policy)}, indent=1))
    else:
        print_summary(summary)
        _print_changes(found, planned.leaving)
        policies.print_policy(policy)


def _preview_with_pulumi(stack: Stack, *, as_json: bool) -> int:
    """Print the summary and the engine's own preview. Raises Failure, after both, if a change is refused."""
    command = ["preview", "--refresh", "--diff"]
    comparison = against_state(stack, engines.export(stack))
    summary = summarize(stack.config)
    if as_json:
        code, printed = engines.read(stack, [*command, "--json"])
        try:
            document = {**json.loads(printed), "summary": as_data(summary, comparison.effects)}
            document["policy"] = policies.as_data(policies.policy_of(stack))
        except ValueError as error:
            raise Failure(f"pulumi preview printed no JSON: {printed.strip() or 'nothing'}") from error
        typer.echo(json.dumps(document, indent=1))
    else:
        print_summary(summary)
        _tell(stack, comparison)
        policies.print_policy(policies.policy_of(stack))
        code = engines.run(stack, command)
    refuse(comparison)
    return code


def _tell(stack: Stack, comparison: Comparison) -> None:
    """Print what an update by the Pulumi engine means for people. Raises Failure if it would lose data."""
    notes: tuple[str, ...] = ()
    if not isinstance(stack.config.cloud, NebiusCloud):
        notes = explain(reach(stack), stack.config, stack.sections, stack=stack.name)
    _print_notes(notes)
    print_effects([effect for effect in comparison.effects if not (notes and _says_who_leaves(effect))])


def _says_who_leaves(effect: Effect) -> bool:
    return effect.action == "delete" and effect.kind == "StatefulSet"


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
    not waited for: new ones join as their pods start, leaving ones wait for their jobs.
    """
    stack = open_stack(config)
    chosen = _choose(stack, engine)
    refuse_unreachable_images(stack.config)
    report = open_report()
    ensure_local_images(report, stack.config)
    if chosen == "pulumi":
        _up_with_pulumi(stack, yes=yes)
    else:
        _up_with_kubectl(stack, report, yes=yes, timeout=timeout)
    if run_srun:
        verify(reach(stack), stack, report, timeout=timeout)


def _up_with_pulumi(stack: Stack, *, yes: bool) -> None:
    comparison = against_state(stack, engines.export(stack))
    _tell(stack, comparison)
    refuse(comparison)
    before = policies.prepare(stack)
    if engines.run(stack, ["up", "--refresh", *(["--yes"] if yes else [])]) != 0:
        raise typer.Exit(FAILED)
    policies.print_done(stack, before)


def _up_with_kubectl(stack: Stack, report: Report, *, yes: bool, timeout: int) -> None:
    kubectl = reach(stack)
    planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
    policy = policies.planned_policy(kubectl if planned.exists else None, stack.config)
    if yes:
        _print_notes(planned.leaving)
    elif not _agreed(kubectl, planned, policy):
        return
    before = policies.run_again(kubectl, stack.config, policy)
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
    policies.print_done_by(kubectl, stack.config, before)


def _agreed(kubectl: Kubectl, planned: Plan, policy: policies.PolicyPlan | None) -> bool:
    """Show the changes and ask. Without a terminal there is nobody to ask."""
    found = compare(kubectl, planned)
    _print_changes(found, planned.leaving)
    policies.print_policy(policy)
    if not found and not (policy and policy.changes):
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
    where the stack is protected (slurmstack:protect, on by default for other than the local cluster).
    """
    stack = open_stack(config)
    if stack.config.protects_data:
        raise Failure(
            "this stack is protected: destroying it deletes the jail with all users' files, and the job queue",
            hint="if that is wanted, set `slurmstack:protect: false` in the stack file, run `up`, then this again",
        )
    chosen = _choose(stack, engine)
    if isinstance(stack.config.cloud, NebiusCloud):
        lost = removal(stack, engines.export(stack))
        print_effects(lost.effects)
        refuse(lost)
        kubectl = reach(stack) if keep_kubeconfig(stack) else None
    else:
        kubectl = reach(stack)
    jobs = _running(kubectl, stack, chosen) if kubectl else []
    if not yes:
        doing = "cancelled" if kill_jobs else "waited for"
        namespace = stack.config.cluster.namespace
        typer.echo(f"This deletes the cluster in namespace {namespace}. {len(jobs)} running jobs are {doing}.")
        _require_terminal()
        if not typer.confirm("Destroy it?"):
            return
    if kubectl:
        report = open_report()
        destroy_cluster(kubectl, stack.config, report, kill_jobs=kill_jobs, workers_only=chosen == "pulumi")
    if chosen == "pulumi":
        raise typer.Exit(engines.run(stack, ["destroy", "--yes"]))


def _running(kubectl: Kubectl, stack: Stack, engine: str) -> list[str]:
    """Ids of running jobs. Raises Failure if the namespace is not that of a cluster which this engine made."""
    namespace = stack.config.cluster.namespace
    present = next(iter(kubectl.items("namespace", namespace)), None)
    (refuse_foreign if engine == "pulumi" else refuse_takeover)(present)
    return running_jobs(kubectl, namespace)


def status(config: ConfigOption = None, *, as_json: JsonOption = False) -> None:
    """Show pods, Slurm nodes, the active configuration and the login address."""
    stack = open_stack(config)
    found = read_status(reach(stack), stack.config)
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
    raise typer.Exit(open_session(reach(stack), stack.config, user=user, key=key, command=command or []))


def kubeconfig(
    config: ConfigOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write it there, for you only.", show_default=False),
    ] = None,
) -> None:
    """Print a kubeconfig for the stack's cluster, for kubectl and other tools."""
    text = kubeconfig_of(open_stack(config))
    if output is None:
        typer.echo(text, nl=not text.endswith("\n"))
    else:
        write_private(output, text)


def _print_changes(found: Sequence[Change], notes: Sequence[str]) -> None:
    console = Console(highlight=False, emoji=False)
    for change in found:
        style = _STYLES[change.action]
        console.print(
            f"[{style}]{SYMBOLS[change.action]:>2} {change.action:7}[/] {change.kind} [bold]{escape(change.name)}[/]",
            soft_wrap=True,
        )
        for item in change.properties:
            console.print(
                f"      {escape(item.path)}: {escape(short(item.old))} => {escape(short(item.new))}", soft_wrap=True
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
        Console(highlight=False, emoji=False).print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)
