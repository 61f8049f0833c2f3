"""Commands that change a cluster: preview, up, destroy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Annotated

import typer

from cli.access.reach import reach, reach_if_made
from cli.commands.local import ensure_local_images
from cli.commands.options import ConfigOption, JsonOption
from cli.engine import pulumi as engines
from cli.errors import FAILED, USAGE, Failure, Refused
from cli.kubectl.apply import Plan, apply, plan
from cli.kubectl.apply import preview as compare
from cli.kubectl.client import OWNERS, Kubectl
from cli.kubectl.destroy import destroy_cluster
from cli.kubectl.lock import Lock, held
from cli.kubectl.rollout import await_rollout, configuration_jobs, require_slurmctld
from cli.kubectl.verify import verify
from cli.preview import policy as policies
from cli.preview.document import Preview, exit_status
from cli.preview.forms import DetailedOption, MarkdownOption, form_of, text_of
from cli.preview.sources import of_cluster, of_engine
from cli.preview.summary import print_summary
from cli.preview.text import print_changes, print_effects, print_notes
from cli.program.manifests import Manifest, refuse_cloud_resources
from cli.program.recording import program_loading, record
from cli.safety.both_ways import expected_effects, of_kubectl, of_pulumi, refuse_foreign_namespace
from cli.safety.change import Change
from cli.safety.comparison import against_state, removal
from cli.safety.effects import effects, refuse
from cli.safety.jobs import Asked, ask, cancel_lost_jobs, jobs_destroyed, print_jobs, refuse_lost_jobs
from cli.safety.owner import refuse_foreign, refuse_takeover
from cli.stack import Stack, open_stack
from config.cluster import ClusterConfig
from config.nebius.cloud import NebiusCloud
from local.report import Report, Step, open_report

EngineOption = Annotated[
    str, typer.Option("--engine", help="auto, pulumi or kubectl. auto takes pulumi where its command is on PATH.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def _choose(stack: Stack, engine: str) -> str:
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
    document = of_engine(stack) if _choose(stack, engine) == "pulumi" else of_cluster(reach(stack), stack)
    if form == "text":
        _print_preview(document)
    else:
        typer.echo(text_of(document, form))
    raise typer.Exit(exit_status(document, detailed=detailed))


def _print_preview(document: Preview) -> None:
    """The preview for people. Raises Refused, after it, if a change is refused."""
    print_summary(document.summary)
    print_effects(document.effects)
    if document.compared:
        print_changes(document.changes)
    print_notes(document.notes)
    print_jobs(document.jobs)
    policies.print_policy(document.policy)
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
    run_srun: Annotated[
        bool, typer.Option("--verify", help="Afterwards run `srun hostname` in the jail as the first user.")
    ] = False,
) -> None:
    """Bring the cluster in line with the stack file, and wait until it is.

    Fails with Slurm's own message if Slurm rejects its new configuration; the old one then goes on. Worker nodes are
    not waited for: new ones join as their pods start, leaving ones wait for their jobs. A change that would end jobs,
    or leave some that never start, is refused without --kill-jobs.
    """
    stack = open_stack(config)
    chosen = _choose(stack, engine)
    _refuse_unreachable_images(stack.config)
    report = open_report()
    ensure_local_images(report, stack.config)
    if chosen == "pulumi":
        _up_with_pulumi(stack, yes=yes, kill_jobs=kill_jobs)
    else:
        _up_with_kubectl(stack, report, yes=yes, timeout=timeout, kill_jobs=kill_jobs)
    if run_srun:
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


def _up_with_pulumi(stack: Stack, *, yes: bool, kill_jobs: bool) -> None:
    with program_loading():
        state = engines.export(stack)
    with ThreadPoolExecutor() as pool:  # Slurm is asked while the program runs
        policy = pool.submit(policies.policy_of, stack)
        comparison = against_state(stack, state)
        refuse_foreign_namespace(stack)
        jobs = of_pulumi(stack, comparison.changes, comparison.resources)
        costs = tuple(expected_effects(stack, comparison))
        print_effects(costs)
        print_jobs(jobs)
        refuse(costs)
        if not kill_jobs:
            refuse_lost_jobs(jobs)
        again = engines.resume(stack, state)
        policies.print_silence(policy.result())
        before = policies.prepare(stack, policy.result())
    if jobs.lost:
        if not yes:  # the engine asks too late: it may wait for a pool that waits for these jobs
            _require_terminal()
            if not typer.confirm(f"Cancel {len(jobs.lost)} job{'s' if len(jobs.lost) > 1 else ''} and go on?"):
                return
        cancel_lost_jobs(reach(stack), stack.config.cluster.namespace, jobs.lost)
    # With --yes nobody reads a preview: what must not be done has been refused above, before anything was touched.
    if engines.run(stack, ["up", "--refresh", *(["--yes", "--skip-preview"] if yes else [])], **again) != 0:
        raise typer.Exit(FAILED)
    policies.print_done(stack, before)
    if jobs.unread:
        require_slurmctld(reach(stack), stack.config.cluster.namespace)
    if (planned := policy.result()) and planned.silent:
        policies.require_answer(reach(stack), stack.config, planned)


def _up_with_kubectl(stack: Stack, report: Report, *, yes: bool, timeout: int, kill_jobs: bool) -> None:
    kubectl = reach(stack)
    with program_loading(), held(kubectl, stack.config.cluster.namespace, "up", report, timeout=timeout) as lock:
        with ThreadPoolExecutor() as pool:  # Slurm is asked while the program loads and runs
            planned, asked, asking = _plan_alone(kubectl, stack, lock, pool)
            refuse(planned.effects)
            found = None if yes else _compare(kubectl, planned, stack.config)
            jobs, policy = of_kubectl(kubectl, planned, found, asked), asking.result()
        print_effects(planned.effects)
        if found is not None:
            print_changes(found)
            policies.print_policy(policy)
        else:
            policies.print_silence(policy)
        print_jobs(jobs)
        if not kill_jobs:
            refuse_lost_jobs(jobs)
        if found is not None:
            if not _agreed(found, policy):
                return
            jobs = of_kubectl(kubectl, planned, found)  # more may have come while the question waited
            if not kill_jobs:
                refuse_lost_jobs(jobs)
        before = policies.run_again(kubectl, stack.config, policy, policies.jobs_among(planned.inside.values()))
        with report.step(f"Applying {len(planned.objects)} objects to namespace {planned.namespace}") as step:
            # What Slurm rejects takes no pool away and costs no job. Those that the new settings would end come before.
            accept = partial(_await, kubectl, planned, configuration_jobs(planned.objects), timeout, step)
            cancel_lost_jobs(kubectl, planned.namespace, [job for job in jobs.lost if job.cause == "setting"])
            apply(kubectl, planned, lock, accept)
            if rest := [job for job in jobs.lost if job.cause != "setting"]:
                accept()
                cancel_lost_jobs(kubectl, planned.namespace, rest)
        with report.step("Waiting until they have taken effect") as step:
            _await(kubectl, planned, planned.objects, timeout, step)
    if not any(before == item["metadata"]["uid"] for item in planned.live.values()):
        policies.print_done_by(kubectl, stack.config, before)
    if jobs.unread:
        require_slurmctld(kubectl, planned.namespace)
    policies.require_answer(kubectl, stack.config, policy)


def _plan_alone(
    kubectl: Kubectl, stack: Stack, lock: Lock, pool: Executor
) -> tuple[Plan, Asked, Future[policies.PolicyPlan | None]]:
    """The plan, and what was asked of Slurm: all as it is while nobody else changes the cluster."""
    while True:
        asked = ask(pool, kubectl, stack.config.cluster.namespace)
        policy = pool.submit(policies.planned_policy, kubectl, stack.config)
        planned = plan(kubectl, stack.config, stack.sections, stack=stack.name)
        if lock.is_held or not planned.exists:
            return planned, asked, policy
        lock.take()  # another command has just begun to make the cluster: after it, all of this is different


def _compare(kubectl: Kubectl, planned: Plan, config: ClusterConfig) -> list[Change]:
    """The plan's changes. Raises Refused if the API server will not make one of them."""
    found = compare(kubectl, planned)
    refuse(effects([item for item in found if item.action == "replace"], config, old=(), way="kubectl"))
    return found


def _await(kubectl: Kubectl, planned: Plan, objects: Sequence[Manifest], timeout: int, step: Step) -> None:
    """Wait until these objects have taken effect."""
    await_rollout(
        kubectl, objects, namespace=planned.namespace, timeout=timeout, tell=lambda text: step.progress(0, 0, text)
    )


def _agreed(found: Sequence[Change], policy: policies.PolicyPlan | None) -> bool:
    """Ask whether to make the changes, if there are any. Without a terminal there is nobody to ask."""
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
    """Delete the cluster: running jobs are waited for, then all goes.

    Refuses, without --kill-jobs, where jobs could outlast drain_timeout of their pool, or would be lost with the queue.
    The jail and the job queue go too, unless they lie on static volumes, as those of the local cluster do. Refuses
    where the stack is protected (slurmstack:protect, on by default for other than the local cluster).
    """
    stack = open_stack(config)
    if stack.config.protects_data:
        raise Refused(
            "this stack is protected: destroying it deletes the jail with all users' files, and the job queue",
            hint="if that is wanted, set `slurmstack:protect: false` in the stack file, run `up`, then this again",
        )
    chosen = _choose(stack, engine)
    if isinstance(stack.config.cloud, NebiusCloud):
        lost = removal(stack, engines.export(stack))
        print_effects(lost.effects)
        refuse(lost.effects)
    kubectl = reach_if_made(stack)
    if kubectl:
        _refuse_other_engine(kubectl, stack, chosen)
        _judge_destroy(kubectl, stack, kill_jobs=kill_jobs)
    if not yes:
        typer.echo(f"This deletes the cluster in namespace {stack.config.cluster.namespace}.")
        _require_terminal()
        if not typer.confirm("Destroy it?"):
            return
    if kubectl:
        report = open_report()
        theirs = chosen == "pulumi"  # its own lock is taken by `pulumi destroy`, after all pods have ended
        if theirs:
            engines.refuse_locked(stack)
        with nullcontext() if theirs else held(kubectl, stack.config.cluster.namespace, "destroy", report):
            # Jobs may have come while a question waited, or somebody else who had the lock.
            _judge_destroy(kubectl, stack, kill_jobs=kill_jobs, again=True)
            destroy_cluster(kubectl, stack.config, report, kill_jobs=kill_jobs, pods_only=theirs)
    if chosen == "pulumi":
        raise typer.Exit(engines.run(stack, ["destroy", "--yes"]))


def _refuse_other_engine(kubectl: Kubectl, stack: Stack, engine: str) -> None:
    """Raise Failure if the namespace is not that of a cluster which this engine made."""
    present = next(iter(kubectl.items("namespace", stack.config.cluster.namespace, OWNERS)), None)
    (refuse_foreign if engine == "pulumi" else refuse_takeover)(present)
    if present is None:
        typer.echo(f"There is no namespace {stack.config.cluster.namespace}: only what is left outside of it goes.")


def _judge_destroy(kubectl: Kubectl, stack: Stack, *, kill_jobs: bool, again: bool = False) -> None:
    """Print what becomes of the jobs. Raises Refused if one would end or be lost, but with `kill_jobs`."""
    jobs = jobs_destroyed(kubectl, stack.config.cluster.namespace, keeps_queue=stack.config.queue_outlives_destroy)
    if kill_jobs:
        if not again and not jobs.unread and jobs.running + jobs.pending:
            typer.echo(f"jobs: {jobs.running} running, {jobs.pending} pending; all are cancelled")
        return
    if not again or jobs.refused:
        print_jobs(jobs)
    refuse_lost_jobs(jobs, "destroy")
