"""Commands that bring a cluster in line with its stack file: preview, up."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated

import typer

from cli.access.reach import reach
from cli.change.apply import (
    DATABASE_GOES_FIRST,
    NOTHING_TOUCHED,
    apply,
    cancel_lost_jobs,
    delete_failed_jobs,
    failed_upgrade_hint,
    forget_restore,
    hinting,
    image_trial,
    is_upgrade,
    save_first,
    send,
    upgraded_first,
)
from cli.change.change import Change
from cli.change.effects import refuse
from cli.change.engine_plan import against_state_and_cluster, jobs_of
from cli.change.jobs import JobsTouched, read_queue, refuse_lost_jobs
from cli.change.lock import Lock, held
from cli.change.owner import data_of
from cli.change.plan import Plan, changes, jobs_of_plan, plan
from cli.change.rollout import await_rollout, configuration_jobs, require_slurmctld
from cli.commands.options import ConfigOption, DetailedOption, JsonOption, MarkdownOption, form_of
from cli.engine import pulumi as engines
from cli.errors import FAILED, USAGE, Failure, Refused
from cli.jail import roots
from cli.kubectl.client import Kubectl, component_of
from cli.preview.document import (
    PolicyPlan,
    Preview,
    beside_objects,
    change_lines,
    counted,
    exit_status,
    markdown,
    of_cluster,
    of_engine,
    planned_policy,
    policy_of,
    run_again,
)
from cli.program.recording import Manifest, program_loading, record, refuse_cloud_resources
from cli.stack import Stack, open_stack
from cli.text import print_lines
from config.cluster import ClusterConfig
from config.sections.cloud import NebiusCloud
from local.report import Report, Step, open_report
from slurm.names import ACCOUNTING

EngineOption = Annotated[
    str, typer.Option("--engine", help="auto, pulumi or kubectl. auto takes pulumi where its command is on PATH.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def choose(stack: Stack, engine: str) -> str:
    """The engine for a stack. Raises Failure where kubectl would have to make what only Pulumi can."""
    chosen = engines.choose(engine)
    if chosen == "kubectl" and isinstance(stack.config.cloud, NebiusCloud):
        refuse_cloud_resources(record(stack.sections, stack=stack.name))
    return chosen


def preview(
    config: ConfigOption = None,
    *,
    engine: EngineOption = "auto",
    as_json: JsonOption = False,
    as_markdown: MarkdownOption = False,
    detailed: DetailedOption = False,
) -> None:
    """Show what `up` would change. Objects that were changed by hand are shown too. Changes nothing.

    Exit status: 0; 3 if the change is refused; 1 if there can be no preview; 2 if stack file or options are wrong.
    """
    form = form_of(as_json=as_json, as_markdown=as_markdown)
    stack = open_stack(config)
    document = of_engine(stack) if choose(stack, engine) == "pulumi" else of_cluster(reach(stack), stack)
    if form == "text":
        _print_preview(document)
    else:
        typer.echo(json.dumps(document.as_data(), indent=1) if form == "json" else markdown(document))
    raise typer.Exit(exit_status(document, detailed=detailed))


def _print_preview(document: Preview) -> None:
    """The preview for people. Raises Refused, after it, if a change is refused."""
    if document.compared:
        print_lines([*change_lines(document.changes), counted(document.changes)])
    print_lines(beside_objects(document))
    if document.refused:
        raise Refused("\n".join(document.refused))


def up(
    config: ConfigOption = None,
    *,
    yes: YesOption = False,
    engine: EngineOption = "auto",
    timeout: Annotated[int, typer.Option(min=1, help="Seconds to wait until everything is ready.")] = 900,
    kill_jobs: Annotated[
        bool, typer.Option("--kill-jobs", help="Cancel the jobs that the change would end or never start.")
    ] = False,
    backup: Annotated[
        bool, typer.Option("--backup/--no-backup", help="Save queue and records before Slurm gets another release.")
    ] = True,
    run_srun: Annotated[
        bool, typer.Option("--verify", help="Afterwards run `srun hostname` in the jail as the first user.")
    ] = False,
) -> None:
    """Bring the cluster in line with the stack file, and wait until it is.

    Fails with Slurm's own message if Slurm rejects its new configuration; the old one then goes on. Worker nodes are
    not waited for: new ones join as their pods start, leaving ones wait for their jobs. A change that would end jobs,
    or leave some that never start, is refused without --kill-jobs.

    Before Slurm gets another release, the queue and accounting's records are saved, where backups are configured (not
    with Pulumi: `slurmstack backup now`). If that fails, nothing is touched. docs/upgrades.md has the way back.
    """
    stack = open_stack(config)
    chosen = choose(stack, engine)
    _refuse_unreachable_images(stack.config)
    report = open_report()
    if chosen == "pulumi":
        _up_with_pulumi(stack, report, yes=yes, kill_jobs=kill_jobs)
    else:
        _up_with_kubectl(stack, report, yes=yes, timeout=timeout, kill_jobs=kill_jobs, backup=backup)
    if run_srun:
        from cli.change.verify import verify  # noqa: PLC0415  only those who ask for it

        verify(reach(stack), stack, report, timeout=timeout)


def _refuse_unreachable_images(config: ClusterConfig) -> None:
    """Raise Failure if machines in a cloud would have to run images that are only on this machine."""
    if isinstance(config.cloud, NebiusCloud) and config.images.registry is None:
        raise Failure(
            "images.registry: the cloud's machines cannot pull images that are only on this machine",
            hint="`slurmstack images build`, then `slurmstack images push --registry R --pin` writes it into the stack "
            "file (docs/images.md)",
            code=USAGE,
        )


def _build_local_images(stack: Stack, report: Report) -> None:
    """Give the local cluster the images of its stack. That may take minutes, so all that is refused comes before."""
    if stack.config.cloud.is_local:
        from cli.commands.local import ensure_local_images  # noqa: PLC0415  all of the local cluster

        ensure_local_images(report, stack.config)


def _up_with_pulumi(stack: Stack, report: Report, *, yes: bool, kill_jobs: bool) -> None:
    with program_loading():
        state = engines.export(stack)
    planned = against_state_and_cluster(stack, state)
    jobs = jobs_of(stack, planned)
    policy = policy_of(stack)
    shown = Preview(stack=stack.name, against="engine", effects=planned.effects, jobs=jobs, policy=policy)
    print_lines(beside_objects(shown))
    refuse(planned.effects)
    roots.refuse_root_of_engine(stack, planned)
    if not kill_jobs:
        refuse_lost_jobs(jobs)
    _build_local_images(stack, report)
    again = engines.resume(stack, state)
    if policy is not None and policy.changes:  # else an update may only now make the cluster
        run_again(reach(stack), stack.config, policy)
    if jobs.lost:
        if not yes:  # the engine asks too late: it may wait for a pool that waits for these jobs
            require_terminal()
            if not typer.confirm(f"Cancel {len(jobs.lost)} job{'s' if len(jobs.lost) > 1 else ''} and go on?"):
                return
        cancel_lost_jobs(reach(stack), stack.config.cluster.namespace, jobs.lost)
    # With --yes nobody reads a preview: what must not be done has been refused above, before anything was touched.
    if engines.run(stack, ["up", "--refresh", *(["--yes", "--skip-preview"] if yes else [])], **again) != 0:
        raise typer.Exit(FAILED)
    kubectl, namespace = reach(stack), stack.config.cluster.namespace
    forget_restore(kubectl, namespace, kubectl.items("statefulset,deployment", "-n", namespace))
    if jobs.unread:
        require_slurmctld(kubectl, namespace)


def _up_with_kubectl(stack: Stack, report: Report, *, yes: bool, timeout: int, kill_jobs: bool, backup: bool) -> None:
    with (
        program_loading(),
        held(kubectl := reach(stack), stack.config.cluster.namespace, "up", report, timeout=timeout) as lock,
    ):
        with ThreadPoolExecutor() as pool:  # Slurm is asked while the program loads and runs
            asked = pool.submit(read_queue, kubectl, stack.config.cluster.namespace)
            asking = pool.submit(planned_policy, kubectl, stack.config)
            planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
            if planned.exists and not lock.is_held:
                raise Failure("another command has just begun to make this cluster", hint="run this again")
            refuse(planned.effects)
            roots.refuse_root_of_plan(kubectl, stack.config, planned, report)
            _print_kept(kubectl, planned)
            found = None if yes else changes(kubectl, planned)
            jobs, policy = jobs_of_plan(kubectl, planned, asked), asking.result()
        if found is not None:
            print_lines([*change_lines(found), counted(found)])
        shown = Preview(stack=stack.name, against="cluster", effects=planned.effects, jobs=jobs, policy=policy)
        print_lines(beside_objects(shown))
        if not kill_jobs:
            refuse_lost_jobs(jobs)
        if found is not None and not _agreed(found, policy):
            return
        _build_local_images(stack, report)
        upgrades, backups = is_upgrade(planned), stack.config.backup is not None
        saved = save_first(kubectl, planned, report) if upgrades and backups and backup else ""
        if trial := image_trial(planned):
            with hinting(NOTHING_TOUCHED), report.step("Trying the images of the control plane") as step:
                delete_failed_jobs(kubectl, planned, trial)
                send(kubectl, trial)
                _await(kubectl, planned, trial, timeout, step)
        if found is not None or trial or saved:
            jobs = jobs_of_plan(kubectl, planned)  # more may have come meanwhile
            if not kill_jobs:
                refuse_lost_jobs(jobs)
        run_again(kubectl, stack.config, policy)
        for objects in upgraded_first(planned):
            name = component_of(objects[0].document)
            hint = DATABASE_GOES_FIRST if name == ACCOUNTING else failed_upgrade_hint(saved, backups=backups)
            with hinting(hint), report.step(f"Giving {name} its new image") as step:
                send(kubectl, objects)
                _await(kubectl, planned, objects, timeout, step)
        with hinting(failed_upgrade_hint(saved, backups=backups) if upgrades else ""):
            _apply(kubectl, planned, lock, report, jobs=jobs, timeout=timeout)
    if jobs.unread:
        require_slurmctld(kubectl, planned.namespace)


def _apply(kubectl: Kubectl, planned: Plan, lock: Lock, report: Report, *, jobs: JobsTouched, timeout: int) -> None:
    with report.step(f"Applying {len(planned.objects)} objects to namespace {planned.namespace}") as step:
        # What Slurm rejects takes no pool away and costs no job.
        accept = partial(_await, kubectl, planned, configuration_jobs(planned.objects), timeout, step)
        apply(kubectl, planned, lock, accept)
        forget_restore(kubectl, planned.namespace, planned.live.values())  # what left the stack is gone by now
        if jobs.lost:
            accept()
            cancel_lost_jobs(kubectl, planned.namespace, jobs.lost)
    with report.step("Waiting until they have taken effect") as step:
        _await(kubectl, planned, planned.objects, timeout, step)


def _print_kept(kubectl: Kubectl, planned: Plan) -> None:
    if planned.is_only_kept:
        kept = "; ".join(data_of(kubectl, planned.namespace).lines)
        typer.echo(f"goes on with what `destroy` has kept: {kept}")


def _await(kubectl: Kubectl, planned: Plan, objects: Sequence[Manifest], timeout: int, step: Step) -> None:
    """Wait until these objects have taken effect."""
    await_rollout(
        kubectl, objects, namespace=planned.namespace, timeout=timeout, tell=lambda text: step.progress(0, 0, text)
    )


def _agreed(found: Sequence[Change], policy: PolicyPlan | None) -> bool:
    """Ask whether to make the changes, if there are any. Without a terminal there is nobody to ask."""
    if not found and not (policy and policy.changes):
        return True
    require_terminal()
    return typer.confirm("Apply these changes?")


def require_terminal() -> None:
    """Raise Failure where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise Failure("there is no terminal to ask at", hint="look at `slurmstack preview`, then add --yes", code=USAGE)
